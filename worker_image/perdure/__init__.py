"""Perdure: durable workflows as Kubernetes resources, at Postgres speed. The public API and nothing else."""

from importlib.metadata import PackageNotFoundError, version

from perdure.api import PreparedStart, step, transaction, workflow
from perdure.client import Client, Handle
from perdure.engine.context import RunInfo, StepInfo, current, is_active
from perdure.engine.pending import PendingStep
from perdure.errors import (
    ControlSignal,
    DecodingFailed,
    EncodingFailed,
    MaxStepRetriesExceeded,
    PayloadTooLarge,
    PerdureError,
    StepBuiltElsewhere,
    StepFailed,
    StepTimeout,
    StoreUnavailable,
    TransactionAborted,
    TransactionMisused,
    WaitTimeout,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowNotFinished,
)

try:
    __version__ = version("perdure")
except PackageNotFoundError:  # from a source tree that is not installed
    __version__ = "0+source"

__all__ = [
    "ControlSignal",
    "DecodingFailed",
    "EncodingFailed",
    "MaxStepRetriesExceeded",
    "PayloadTooLarge",
    "PendingStep",
    "PerdureError",
    "RunInfo",
    "StepBuiltElsewhere",
    "StepFailed",
    "StepInfo",
    "StepTimeout",
    "StoreUnavailable",
    "TransactionAborted",
    "TransactionMisused",
    "WaitTimeout",
    "WorkflowCancelled",
    "WorkflowFailed",
    "WorkflowNotFinished",
    "__version__",
    "current",
    "is_active",
    "step",
    "transaction",
    "workflow",
]
