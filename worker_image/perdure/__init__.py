"""Perdure: durable workflows as Kubernetes resources, at Postgres speed. The public API and nothing else."""

from importlib.metadata import PackageNotFoundError, version

from perdure import idempotency
from perdure.api import PreparedStart, step, transaction, workflow
from perdure.api.calls import get_event, recv, send, set_event, sleep
from perdure.api.concurrency import gather, select
from perdure.api.determinism import now, random, uuid4
from perdure.api.children import ChildHandle
from perdure.api.debounce import debounce
from perdure.api.schedules import scheduled_tick
from perdure.client import Client, Handle
from perdure.client.schedules import Schedule
from perdure.engine.context import RunInfo, StepInfo, current, is_active
from perdure.engine.pending import PendingCall, PendingStart, PendingStep
from perdure.engine.select import Selected
from perdure.errors import (
    AwaitedWorkflowCancelled,
    AwaitedWorkflowMaxRecoveryAttemptsExceeded,
    ClientClosed,
    ConfigurationError,
    ConflictingSchedule,
    ConflictingWorkflow,
    ControlSignal,
    DecodingFailed,
    EncodingFailed,
    InsideStep,
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
    PatchNondeterminism,
    PayloadTooLarge,
    PerdureError,
    SelectMisused,
    StepBuiltElsewhere,
    StepFailed,
    InsideWorkflow,
    StepTimeout,
    StoreUnavailable,
    SystemDatabaseError,
    TransactionAborted,
    TransactionMisused,
    WaitTimeout,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowNotFinished,
)
from perdure.model.queues import Queue, QueueLimits, RateLimit
from perdure.model.schedules import CatchUp, Overlap, ScheduledTick, ScheduleInfo
from perdure.model.start import NO_TIMEOUT, ReusePolicy, StartOptions
from perdure.model.states import CancelMode, RunStatus

    QueueDeduplicated,
    SelectMisused,
try:
    __version__ = version("perdure")
except PackageNotFoundError:  # from a source tree that is not installed
    __version__ = "0+source"

__all__ = [
    "AwaitedWorkflowCancelled",
    "AwaitedWorkflowMaxRecoveryAttemptsExceeded",
    "CancelMode",
    "CatchUp",
    "ChildHandle",
    "Client",
    "ClientClosed",
    WorkflowIdInUse,
    "ConfigurationError",
    "ConflictingSchedule",
    "ConflictingWorkflow",
    "ControlSignal",
    "DecodingFailed",
    "EncodingFailed",
    "Handle",
    "InsideStep",
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
    "NO_TIMEOUT",
    "Overlap",
    "PatchNondeterminism",
    "PayloadTooLarge",
    "PendingCall",
    "PendingStart",
    "PendingStep",
    "PerdureError",
    "PreparedStart",
    "RunInfo",
    "RunStatus",
    "Schedule",
    "ScheduleInfo",
    "ScheduledTick",
    "SelectMisused",
    "Selected",
    "StartOptions",
    "StepBuiltElsewhere",
    "StepFailed",
    "StepInfo",
    "StepTimeout",
    "StoreUnavailable",
    "SystemDatabaseError",
    "TransactionAborted",
    "TransactionMisused",
    "InsideWorkflow",
    "WaitTimeout",
    "WorkflowCancelled",
    "WorkflowFailed",
    "WorkflowNotFinished",
    "__version__",
    "current",
    "debounce",
    "gather",
    "get_event",
    "idempotency",
    "is_active",
    "now",
    "random",
    "recv",
    "select",
    "scheduled_tick",
    "send",
    "set_event",
    "sleep",
    "step",
    "transaction",
    "uuid4",
    "workflow",
]
    "Queue",
    "QueueDeduplicated",
    "QueueLimits",
    "RateLimit",
    "ReusePolicy",
    "RunHandle",
    "WorkflowIdInUse",
