"""Every error a person or a program meets, with a stable code.

The lowest layer: everything else may import it, it imports nothing of the project. A code never changes its
meaning and is never used again; `docs/reference/errors.md` has a paragraph for each.

Two families that must not be mixed up:

* `PerdureError` and its subclasses are ordinary exceptions: something is wrong and somebody can act on it.
* `ControlSignal` and its subclasses derive from `BaseException`: they end the body of a run without being a
  failure of it (its ownership moved, it was cancelled, it gives its slot back). User code that catches
  `Exception` cannot swallow them, and they are never recorded as an outcome of a step.

One module for each family. What is here is all of them, and `perdure.errors` is the module that their names are
recorded under: a recorded failure is found again wherever its class is moved to.
"""

from __future__ import annotations

from perdure.errors.arguments import InvalidArgument
from perdure.errors.base import PerdureError
from perdure.errors.client import (
    ClientClosed,
    ConflictingWorkflow,
    NonExistentWorkflow,
    WaitTimeout,
    WorkflowNotFinished,
)
from perdure.errors.determinism import NotDeterministic, SelectMisused
from perdure.errors.instance import AlreadyLaunched, Interrupted, NotLaunched, NotRegistered, WrongInstance
from perdure.errors.keys import KeyInProgress, KeyLost
from perdure.errors.management import WorkflowConflict, WorkflowNotRewindable
from perdure.errors.payloads import PayloadsUnavailable
from perdure.errors.portable import Portable
from perdure.errors.queues import NonExistentQueue
from perdure.errors.replay import (
    HistoryUnreadable,
    InputMismatch,
    InsideStep,
    InsideWorkflow,
    NotInWorkflow,
    PatchNondeterminism,
    ReplayDiffers,
    StepBuiltElsewhere,
    UnexpectedStep,
    UnknownStep,
    UnknownWorkflow,
)
from perdure.errors.runs import (
    AwaitedWorkflowCancelled,
    AwaitedWorkflowMaxRecoveryAttemptsExceeded,
    CompensationFailed,
    MaxRecoveryAttemptsExceeded,
    WorkflowCancelled,
    WorkflowFailed,
)
from perdure.errors.schedules import ConflictingSchedule, NonExistentSchedule
from perdure.errors.setup import (
    AlreadyRegistered,
    BootstrapFailed,
    ConfigurationError,
    InvalidResource,
    MigrationFilesChanged,
    RegistrationError,
)
from perdure.errors.signals import (
    BodyStopped,
    CancelRequested,
    ControlSignal,
    OwnershipLost,
    ReleaseRequested,
    SlotGivenBack,
)
from perdure.errors.starts import QueueDeduplicated, WorkflowIdInUse
from perdure.errors.steps import MaxStepRetriesExceeded, StepFailed, StepTimeout, TransactionAborted, TransactionMisused
from perdure.errors.store import (
    MigrationFailed,
    PoolerInTheWay,
    SchemaOutOfRange,
    StoreUnavailable,
    SystemDatabaseError,
    WorkerLost,
)
from perdure.errors.streams import StreamClosed, StreamTimeout
from perdure.errors.values import DecodingFailed, EncodingFailed, PayloadTooLarge, UnknownSerialization

__all__ = [
    "AlreadyLaunched",
    "AlreadyRegistered",
    "AwaitedWorkflowCancelled",
    "AwaitedWorkflowMaxRecoveryAttemptsExceeded",
    "BodyStopped",
    "BootstrapFailed",
    "CancelRequested",
    "ClientClosed",
    "CompensationFailed",
    "ConfigurationError",
    "ConflictingSchedule",
    "ConflictingWorkflow",
    "ControlSignal",
    "DecodingFailed",
    "EncodingFailed",
    "HistoryUnreadable",
    "InputMismatch",
    "InsideStep",
    "InsideWorkflow",
    "Interrupted",
    "InvalidArgument",
    "InvalidResource",
    "KeyInProgress",
    "KeyLost",
    "MaxRecoveryAttemptsExceeded",
    "MaxStepRetriesExceeded",
    "MigrationFailed",
    "MigrationFilesChanged",
    "NonExistentQueue",
    "NonExistentSchedule",
    "NonExistentWorkflow",
    "NotDeterministic",
    "NotInWorkflow",
    "NotLaunched",
    "NotRegistered",
    "OwnershipLost",
    "PatchNondeterminism",
    "PayloadTooLarge",
    "PayloadsUnavailable",
    "PerdureError",
    "PoolerInTheWay",
    "Portable",
    "QueueDeduplicated",
    "RegistrationError",
    "ReleaseRequested",
    "ReplayDiffers",
    "SchemaOutOfRange",
    "SelectMisused",
    "SlotGivenBack",
    "StepBuiltElsewhere",
    "StepFailed",
    "StepTimeout",
    "StoreUnavailable",
    "StreamClosed",
    "StreamTimeout",
    "SystemDatabaseError",
    "TransactionAborted",
    "TransactionMisused",
    "UnexpectedStep",
    "UnknownSerialization",
    "UnknownStep",
    "UnknownWorkflow",
    "WaitTimeout",
    "WorkerLost",
    "WorkflowCancelled",
    "WorkflowConflict",
    "WorkflowFailed",
    "WorkflowIdInUse",
    "WorkflowNotFinished",
    "WorkflowNotRewindable",
    "WrongInstance",
]

for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
