"""Types and reasons of conditions, and the kinds of waits: the words that users match on and never change.

Used by the projection, the operator and the docs; `docs/reference/resources.md` prints the sentences below.
A reason is API: it may be added, never renamed.
"""

from __future__ import annotations

from enum import StrEnum


class WorkflowCondition(StrEnum):
    """Condition types of a Workflow."""

    ACCEPTED = "Accepted"
    FINISHED = "Finished"
    SUCCEEDED = "Succeeded"
    STALLED = "Stalled"


class PoolCondition(StrEnum):
    """Condition types of a WorkerPool."""

    READY = "Ready"
    STALLED = "Stalled"
    CONNECTIONS_SUFFICE = "ConnectionsSuffice"


class SignalCondition(StrEnum):
    """Condition types of a WorkflowSignal."""

    DELIVERED = "Delivered"


CONDITION_MEANINGS: dict[StrEnum, str] = {
    WorkflowCondition.ACCEPTED: "The spec is valid and its run is stored. False: the reason says what to change.",
    WorkflowCondition.FINISHED: "The run has ended, whichever way. `kubectl wait --for=condition=Finished`.",
    WorkflowCondition.SUCCEEDED: "True: it ended well. False: it failed or was cancelled. Unknown: not ended yet.",
    WorkflowCondition.STALLED: "True: it will not go on unless somebody changes something; the message says what.",
    SignalCondition.DELIVERED: "The message is in the inbox of the run. False: the reason says why not.",
    PoolCondition.READY: "As many worker pods of the current version are ready as are wanted.",
    PoolCondition.STALLED: "True: worker pods cannot be brought up; the message says what to change.",
    PoolCondition.CONNECTIONS_SUFFICE: "False: the wanted worker pods may open more connections than Postgres lets in; "
    "the message has the numbers. Absent behind a pooler, and for a pool with a database of its own.",
}


class Reason(StrEnum):
    """Reasons of conditions and of `.status.reason`."""

    ACCEPTED = "Accepted"
    INVALID_SPEC = "InvalidSpec"
    INPUT_TOO_LARGE = "InputTooLarge"
    DUPLICATE_STEP = "DuplicateStep"
    UNKNOWN_NEED = "UnknownNeed"
    CYCLE_IN_NEEDS = "CycleInNeeds"
    DEFINITION_CHANGED = "DefinitionChanged"
    NOT_ACCEPTED = "NotAccepted"

    PENDING = "Pending"
    RUNNING = "Running"
    CANCELLING = "Cancelling"
    COMPENSATING = "Compensating"
    PROGRESSING = "Progressing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    COMPENSATION_FAILED = "CompensationFailed"
    CANCELLED = "Cancelled"
    MAX_RECOVERY_ATTEMPTS_EXCEEDED = "MaxRecoveryAttemptsExceeded"

    WORKERS_READY = "WorkersReady"
    SCALED_TO_ZERO = "ScaledToZero"
    WAITING_FOR_WORKERS = "WaitingForWorkers"
    POOL_SUSPENDED = "PoolSuspended"
    TEMPLATE_REFUSED = "TemplateRefused"
    PODS_FAILING = "PodsFailing"
    DATABASE_UNREACHABLE = "DatabaseUnreachable"
    ENOUGH_CONNECTIONS = "EnoughConnections"
    TOO_FEW_CONNECTIONS = "TooFewConnections"

    DELIVERED = "Delivered"
    WORKFLOW_NOT_FOUND = "WorkflowNotFound"
    WORKFLOW_NOT_STARTED = "WorkflowNotStarted"
    WORKFLOW_ENDED = "WorkflowEnded"


REASON_MEANINGS: dict[Reason, str] = {
    Reason.ACCEPTED: "The spec is valid and stored.",
    Reason.INVALID_SPEC: "A field breaks a rule that the API server could not check; the message has its path.",
    Reason.INPUT_TOO_LARGE: "`spec.input`, or `spec.value` of a signal, is over 256 KiB as JSON. Store it elsewhere "
    "and pass a reference.",
    Reason.DUPLICATE_STEP: "Two steps have one name.",
    Reason.UNKNOWN_NEED: "`needs` names a step that is not in `spec.steps`.",
    Reason.CYCLE_IN_NEEDS: "Steps need each other in a circle, so none of them could start.",
    Reason.DEFINITION_CHANGED: "What defines the run was changed after it was accepted; the run keeps the old one.",
    Reason.NOT_ACCEPTED: "The run ended before it began because its spec was not accepted.",
    Reason.PENDING: "The run has not been claimed by a worker yet.",
    Reason.RUNNING: "A worker runs it.",
    Reason.CANCELLING: "A cancel was asked for; the run is on its way to its end.",
    Reason.COMPENSATING: "The run has failed or is cancelled, and what it had done is undone; then it ends.",
    Reason.PROGRESSING: "The run goes on by itself.",
    Reason.SUCCEEDED: "The run returned.",
    Reason.FAILED: "The run raised; `.status.error` has the message.",
    Reason.COMPENSATION_FAILED: "The run failed or was cancelled, and not all that it had done could be undone; "
    "`.status.error` says what.",
    Reason.CANCELLED: "The run was cancelled, its Workflow was deleted, or its timeout passed.",
    Reason.MAX_RECOVERY_ATTEMPTS_EXCEEDED: "Its workers died too often without progress in between; it was parked.",
    Reason.WORKERS_READY: "All wanted worker pods are ready.",
    Reason.SCALED_TO_ZERO: "Nothing to do, so no worker pods are wanted.",
    Reason.WAITING_FOR_WORKERS: "Worker pods are wanted and not ready yet.",
    Reason.POOL_SUSPENDED: "`spec.suspend` is true: the pool has no worker pods.",
    Reason.TEMPLATE_REFUSED: "The API server refused the Deployment made from `spec.template`.",
    Reason.PODS_FAILING: "Worker pods are not becoming ready; the message has the first container's reason.",
    Reason.DATABASE_UNREACHABLE: "Postgres cannot be reached; replicas stay as they are.",
    Reason.ENOUGH_CONNECTIONS: "Postgres lets in as many connections as the wanted pods open.",
    Reason.TOO_FEW_CONNECTIONS: "Postgres lets in fewer connections than the wanted pods may open.",
    Reason.DELIVERED: "The run has the message, and takes it when it asks for that topic.",
    Reason.WORKFLOW_NOT_FOUND: "No Workflow of that name is in the namespace; it is waited for for a minute.",
    Reason.WORKFLOW_NOT_STARTED: "The Workflow is there, its run is not stored yet; the message follows.",
    Reason.WORKFLOW_ENDED: "The run had ended, or the Workflow was refused: nobody would take the message.",
}


class WaitKind(StrEnum):
    """What a run can wait for, in `.status.waitingFor.kind` and, while it waits, in `.status.reason`."""

    FREE_WORKER = "FreeWorker"
    NO_FREE_SLOT = "NoFreeSlot"
    NO_WORKER_POOL = "NoWorkerPool"
    POOL_STARTING = "PoolStarting"
    POOL_NOT_READY = "PoolNotReady"
    POOL_SUSPENDED = "PoolSuspended"
    QUEUE_PAUSED = "QueuePaused"
    QUEUE_LIMIT = "QueueLimit"
    RATE_LIMIT = "RateLimit"
    NO_WORKER_VERSION = "NoWorkerVersion"
    UNKNOWN_WORKFLOW = "UnknownWorkflow"
    UNKNOWN_STEP = "UnknownStep"
    RETRY_BACKOFF = "RetryBackoff"
    RUN_RETRY = "RunRetry"
    SLEEP = "Sleep"
    MESSAGE = "Message"
    EVENT = "Event"
    STREAM = "Stream"
    CHILD = "Child"
    SUSPENDED = "Suspended"


WAIT_MEANINGS: dict[WaitKind, str] = {
    WaitKind.FREE_WORKER: "It is ready; the next worker of its pool with a free slot takes it.",
    WaitKind.NO_FREE_SLOT: "All slots of the pool are taken; it is its turn as soon as one is free.",
    WaitKind.NO_WORKER_POOL: "No WorkerPool of that name in the namespace, or none that serves its queue.",
    WaitKind.POOL_STARTING: "Worker pods of the pool are on their way up.",
    WaitKind.POOL_NOT_READY: "No worker pod of the pool becomes ready; the message says why.",
    WaitKind.POOL_SUSPENDED: "The pool is suspended.",
    WaitKind.QUEUE_PAUSED: "Its queue is paused: nothing of it is taken.",
    WaitKind.QUEUE_LIMIT: "As many runs of its queue run as its limits allow; it is its turn when one leaves.",
    WaitKind.RATE_LIMIT: "As many runs of its queue have begun as its rate allows for now.",
    WaitKind.NO_WORKER_VERSION: "It began in a version of the pool's template that is not there any more.",
    WaitKind.UNKNOWN_WORKFLOW: "No live worker of the pool has a workflow of that name registered.",
    WaitKind.UNKNOWN_STEP: "No live worker of the pool has a step of that name registered.",
    WaitKind.RETRY_BACKOFF: "A step failed and is tried again at the given time.",
    WaitKind.RUN_RETRY: "Its replay did not match or its body failed; it is tried again at the given time.",
    WaitKind.SLEEP: "The body sleeps until the given time.",
    WaitKind.MESSAGE: "The body waits for a message; with a time, no longer than that.",
    WaitKind.EVENT: "The body waits for an event of a run; with a time, no longer than that.",
    WaitKind.STREAM: "The body waits for a value of a stream of a run; with a time, no longer than that.",
    WaitKind.CHILD: "The body waits for the end of another run.",
    WaitKind.SUSPENDED: "`spec.suspend` is true.",
}

STALLING: frozenset[WaitKind] = frozenset(
    {
        WaitKind.NO_WORKER_POOL,
        WaitKind.POOL_NOT_READY,
        WaitKind.NO_WORKER_VERSION,
        WaitKind.UNKNOWN_WORKFLOW,
        WaitKind.UNKNOWN_STEP,
    }
)
"""Waits that end only when somebody does something nobody has been asked for yet: these set `Stalled`."""
