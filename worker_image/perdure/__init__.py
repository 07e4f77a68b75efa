"""Perdure: durable workflows as Kubernetes resources, at Postgres speed. The public API and nothing else."""

from typing import TYPE_CHECKING, Any

from perdure import idempotency
from perdure.api import PreparedStart, step, transaction, workflow
from perdure.api.calls import get_event, recv, send, set_event, sleep
from perdure.api.concurrency import gather, select
from perdure.api.debounce import debounce
from perdure.api.determinism import now, random, uuid4
from perdure.api.failing import error
from perdure.api.handles import ChildHandle, RunHandle, handle, join_workflows, select_workflow
from perdure.api.inline import run_step
from perdure.api.management import (
    cancel,
    delete,
    fork,
    get_workflow,
    list_steps,
    list_workflows,
    resume,
    rewind,
    set_attributes,
    set_delay,
)
from perdure.api.patching import deprecate_patch, patch
from perdure.api.schedules import scheduled_tick
from perdure.api.serializers import register_codec, register_serializer
from perdure.api.streams import close_stream, read_stream, write_stream
from perdure.api.sync import run_sync
from perdure.client import Client, Handle
from perdure.client.schedules import Schedule
from perdure.engine.cancellation import Cancellation
from perdure.engine.context import RunInfo, StepInfo, current, is_active
from perdure.engine.pending import PendingCall, PendingStart, PendingStep
from perdure.engine.select import Selected
from perdure.engine.serialization import Codec, Serializer
from perdure.errors import (
    AlreadyLaunched,
    AlreadyRegistered,
    AwaitedWorkflowCancelled,
    AwaitedWorkflowMaxRecoveryAttemptsExceeded,
    ClientClosed,
    CompensationFailed,
    ConfigurationError,
    ConflictingSchedule,
    ConflictingWorkflow,
    ControlSignal,
    DecodingFailed,
    EncodingFailed,
    HistoryUnreadable,
    InsideStep,
    InsideWorkflow,
    Interrupted,
    InvalidArgument,
    KeyInProgress,
    KeyLost,
    MaxRecoveryAttemptsExceeded,
    MaxStepRetriesExceeded,
    NonExistentQueue,
    NonExistentSchedule,
    NonExistentWorkflow,
    NotDeterministic,
    NotInWorkflow,
    NotLaunched,
    NotRegistered,
    PatchNondeterminism,
    PayloadsUnavailable,
    PayloadTooLarge,
    PerdureError,
    Portable,
    QueueDeduplicated,
    RegistrationError,
    ReplayDiffers,
    SelectMisused,
    StepBuiltElsewhere,
    StepFailed,
    StepTimeout,
    StoreUnavailable,
    StreamClosed,
    StreamTimeout,
    SystemDatabaseError,
    TransactionAborted,
    TransactionMisused,
    UnexpectedStep,
    UnknownSerialization,
    WaitTimeout,
    WorkflowCancelled,
    WorkflowConflict,
    WorkflowFailed,
    WorkflowIdInUse,
    WorkflowNotFinished,
    WorkflowNotRewindable,
    WrongInstance,
)
from perdure.model.history import RunHistory
from perdure.model.listing import RunDetails, RunFilters, RunPage, StepDetails
from perdure.model.management import Cut
from perdure.model.queues import Queue, QueueLimits, RateLimit
from perdure.model.schedules import CatchUp, Overlap, ScheduledTick, ScheduleInfo
from perdure.model.serialization import Serialization
from perdure.model.start import NO_TIMEOUT, ReusePolicy, StartOptions
from perdure.model.states import CancelMode, RunStatus
from perdure.model.versions import VersionPolicy
from perdure.telemetry.build import VERSION

WorkflowNotFound = NonExistentWorkflow
"""The same error, under the name that says why a call by id failed."""

if TYPE_CHECKING:
    from perdure.instance import Instance, InstanceSettings, launch, shutdown

__version__ = VERSION

__all__ = [
    "NO_TIMEOUT",
    "AlreadyLaunched",
    "AlreadyRegistered",
    "AwaitedWorkflowCancelled",
    "AwaitedWorkflowMaxRecoveryAttemptsExceeded",
    "CancelMode",
    "Cancellation",
    "CatchUp",
    "ChildHandle",
    "Client",
    "ClientClosed",
    "Codec",
    "CompensationFailed",
    "ConfigurationError",
    "ConflictingSchedule",
    "ConflictingWorkflow",
    "ControlSignal",
    "Cut",
    "DecodingFailed",
    "EncodingFailed",
    "Handle",
    "HistoryUnreadable",
    "InsideStep",
    "InsideWorkflow",
    "Instance",
    "InstanceSettings",
    "Interrupted",
    "InvalidArgument",
    "KeyInProgress",
    "KeyLost",
    "MaxRecoveryAttemptsExceeded",
    "MaxStepRetriesExceeded",
    "NonExistentQueue",
    "NonExistentSchedule",
    "NonExistentWorkflow",
    "NotDeterministic",
    "NotInWorkflow",
    "NotLaunched",
    "NotRegistered",
    "Overlap",
    "PatchNondeterminism",
    "PayloadTooLarge",
    "PayloadsUnavailable",
    "PendingCall",
    "PendingStart",
    "PendingStep",
    "PerdureError",
    "Portable",
    "PreparedStart",
    "Queue",
    "QueueDeduplicated",
    "QueueLimits",
    "RateLimit",
    "RegistrationError",
    "ReplayDiffers",
    "ReusePolicy",
    "RunDetails",
    "RunFilters",
    "RunHandle",
    "RunHistory",
    "RunInfo",
    "RunPage",
    "RunStatus",
    "Schedule",
    "ScheduleInfo",
    "ScheduledTick",
    "SelectMisused",
    "Selected",
    "Serialization",
    "Serializer",
    "StartOptions",
    "StepBuiltElsewhere",
    "StepDetails",
    "StepFailed",
    "StepInfo",
    "StepTimeout",
    "StoreUnavailable",
    "StreamClosed",
    "StreamTimeout",
    "SystemDatabaseError",
    "TransactionAborted",
    "TransactionMisused",
    "UnexpectedStep",
    "UnknownSerialization",
    "VersionPolicy",
    "WaitTimeout",
    "WorkflowCancelled",
    "WorkflowConflict",
    "WorkflowFailed",
    "WorkflowIdInUse",
    "WorkflowNotFinished",
    "WorkflowNotFound",
    "WorkflowNotRewindable",
    "WrongInstance",
    "__version__",
    "cancel",
    "close_stream",
    "current",
    "debounce",
    "delete",
    "deprecate_patch",
    "error",
    "fork",
    "gather",
    "get_event",
    "get_workflow",
    "handle",
    "idempotency",
    "is_active",
    "join_workflows",
    "launch",
    "list_steps",
    "list_workflows",
    "now",
    "patch",
    "random",
    "read_stream",
    "recv",
    "register_codec",
    "register_serializer",
    "resume",
    "rewind",
    "run_step",
    "run_sync",
    "scheduled_tick",
    "select",
    "select_workflow",
    "send",
    "set_attributes",
    "set_delay",
    "set_event",
    "shutdown",
    "sleep",
    "step",
    "transaction",
    "uuid4",
    "workflow",
    "write_stream",
]

_LATER = frozenset({"Instance", "InstanceSettings", "launch", "shutdown"})
"""Imported when they are first asked for: with them comes the whole worker, which few programs embed."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from perdure import instance

    return getattr(instance, name)
