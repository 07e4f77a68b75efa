"""Frozen views of database rows, as the layers hand them to each other. Field = column unless said otherwise.

Instants are timezone-aware and come from the database's clock. Payloads (`input`, `output`, `error`,
`definition`) are texts, never decoded here: JSON, or what a serializer has made of it (`engine.encoding`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from perdure.model.serialization import Serialization
from perdure.model.states import CancelMode, RunStatus, StepStatus, Undo, WorkerState

DECLARED_WORKFLOW = "perdure.declared"
"""Registered name under which runs with declared steps are executed."""

UNDO = "perdure.undo"
"""Recorded name of the step that says what of a run is undone; behind it stand the steps that do it."""

REVISION_SHIFT = 20
"""`revision` = fence * 2**20 + sequence: below 2**53 for 2**33 changes of owner, so every JSON client keeps it."""

MAX_WRITES = (1 << REVISION_SHIFT) - (1 << 16)
"""Writes of one claim after which the run is given back, to go on under a higher fence: half a million steps. Beyond
the part of the revision that counts them, it would stand still. The rest is for what is written meanwhile and for
changes from outside, which are counted with them."""


def workflow_requirement(name: str) -> str:
    """Entry of a manifest, and of `workflows.requires`, that stands for a registered workflow."""
    return f"workflow:{name}"


def step_requirement(name: str) -> str:
    """Entry of a manifest, and of `workflows.requires`, that stands for a registered step."""
    return f"step:{name}"


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """What a run waits for: `kind` is a stable reason (`RetryBackoff`, `NoWorkerPool`, `PoolNotReady`,
    `UnknownWorkflow`, `NoFreeSlot`, `Suspended` …), `name` the thing, `until` an instant if there is one,
    `message` a sentence for people that says what to do. `on`: the keys under which a parked run is woken before
    its time (`model.calls`)."""

    kind: str
    name: str = ""
    message: str = ""
    until: datetime | None = None
    on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewRun:
    """What intake wants a row to say. `generation` is `metadata.generation` (0 for runs without a resource)."""

    id: str
    namespace: str
    name: str | None
    workflow: str
    requires: tuple[str, ...]
    input: str
    definition: str | None = None
    pool: str = "default"
    queue: str = "default"
    priority: int = 100
    timeout: timedelta | None = None
    suspended: bool = False
    cancel_mode: CancelMode | None = None
    max_recoveries: int = 10
    max_run_attempts: int | None = None
    """How often the body runs in all when it fails; None: as often as the setting of the worker says."""
    generation: int = 0
    partition_key: str = ""
    """Partitions of a queue take turns; empty: in none. Never changes."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One row of `workflow_steps`, as replay reads it. `attempts` counts recorded failures; an attempt cut off
    by a crash is none. `attempt_errors` is a JSON list of error records, oldest first."""

    index: int
    name: str
    status: StepStatus
    input: str
    output: str | None
    error: str | None
    attempts: int
    attempt_errors: str | None
    wake_at: datetime | None
    wake_in: float | None
    """Seconds until `wake_at` by the database's clock when the row was read; negative when it has passed."""


# Not frozen, since setting the fields of a frozen one costs thrice as much, and there are many; nobody changes one.
@dataclass(slots=True)
class ClaimedRun:
    """A run that this process owns under `fence`, with everything needed to execute it."""

    id: str
    fence: int
    namespace: str
    name: str | None
    workflow: str
    input: str
    definition: str | None
    run_attempts: int
    max_run_attempts: int | None
    recoveries: int
    wake_seq: int
    cancel_mode: CancelMode | None
    suspended: bool
    deadline_in: float | None
    """Seconds until the deadline by the database's clock at the claim, None without one."""
    steps: tuple[RecordedStep, ...] = ()
    more_steps: bool = False
    """Whether there may be recorded steps behind `steps`."""
    ready_seconds: float = 0.0
    """How long the run had been claimable when it was claimed, by the database's clock."""
    parent_id: str | None = None
    """The run that started this one."""
    rewinds: int = 0
    """How often it was rewound."""
    undo: Undo | None = None
    """Whether steps of it can be undone, or are."""
    seed: str | None = None
    """Of a fork: the id of the run that the first of its line was, which chance in its body goes by."""
    serialization: Serialization | None = None
    """How its values are written, where its start, or the workflow that started it, has said so."""

    @property
    def undoes(self) -> bool:
        """Whether it undoes its steps from here on, and does nothing else. Only its removal comes before that."""
        return bool(self.undo) and self.cancel_mode in {None, CancelMode.COMPENSATE}

    @property
    def stem(self) -> str:
        """How ids and keys begin that the run gives away. A step that is done again after a rewind gives away others,
        so that nothing of before is taken for the new one."""
        return self.id if self.rewinds == 0 else f"{self.id}~{self.rewinds}"


# Not frozen, as the claimed run: two are made for every step.
@dataclass(slots=True)
class StepWrite:
    """The whole state of one step after one event, for the journal. Folding two writes of one index = the later.

    `seq` is the run's write number within the claim, rising from 1. `wake_in` (seconds) sets `wake_at` on a
    RETRYING step by the database's clock. `input` may be None in a write that follows another of the same claim.
    `fresh`: a start, and nothing is recorded at this index. It says nothing but name, input and numbers.
    """

    index: int
    seq: int
    name: str
    status: StepStatus
    input: str | None = None
    output: str | None = None
    error: str | None = None
    attempts: int = 0
    attempt_errors: str | None = None
    wake_in: float | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class OwnedFlags:
    """What the journal's statement says about a run it found owned."""

    cancel_mode: CancelMode | None
    suspended: bool
    wake_seq: int


@dataclass(frozen=True, slots=True)
class OwnedRun:
    """One RUNNING row of a worker, as its beat brings it back (the level, not the change)."""

    id: str
    fence: int
    cancel_mode: CancelMode | None
    suspended: bool
    deadline_passed: bool


@dataclass(frozen=True, slots=True)
class MovedRun:
    """A run taken from an ended worker: ENQUEUED again, CANCELLED because a cancel was set, or parked as
    MAX_RECOVERY_ATTEMPTS_EXCEEDED. `namespace` and `pool` say whom to notify, the rest is for the log."""

    id: str
    status: RunStatus
    namespace: str
    pool: str
    workflow: str
    run_attempts: int
    max_run_attempts: int | None
    recoveries: int


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as it registers itself. `id` = pod UID (or host name) + boot nonce; never used again."""

    id: str
    namespace: str
    pool: str
    pod: str
    pod_uid: str
    version: str
    queues: tuple[str, ...]
    manifest: tuple[str, ...]
    slots: int
    state: WorkerState = WorkerState.LIVE


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, for the status projection: read in one snapshot with its steps."""

    id: str
    namespace: str
    name: str | None
    workflow: str
    pool: str
    queue: str
    version: str | None
    status: RunStatus
    fence: int
    edits: int
    suspended: bool
    cancel_mode: CancelMode | None
    cancel_reason: str | None
    generation: int
    run_attempts: int
    recoveries: int
    max_recoveries: int
    waiting_for: WaitingFor | None
    waiting_since: datetime | None
    wake_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker_pod: str | None
    definition: str | None
    output: str | None
    output_bytes: int
    error: str | None
    last_seq: int
    """Highest `seq` of a step written under the current fence, 0 if none."""
    undo: Undo | None = None

    @property
    def undoes(self) -> bool:
        """Whether it undoes its steps, or is about to."""
        return bool(self.undo) and not self.status.finished

    @property
    def revision(self) -> int:
        """Monotonic number of the projection; equal revisions mean equal content.

        `last_seq` and `edits` both only grow while the fence stands, so equal sums mean both are equal.
        """
        return (self.fence << REVISION_SHIFT) + min(self.last_seq + self.edits, (1 << REVISION_SHIFT) - 1)


@dataclass(frozen=True, slots=True)
class StepView:
    """One step, for the status projection. `output` is None when it is larger than the projection shows."""

    index: int
    name: str
    status: StepStatus
    attempts: int
    output: str | None
    error: str | None
    started_at: datetime
    finished_at: datetime | None
    wake_at: datetime | None


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Counts over all recorded steps of a run, also of those that the projection leaves out. `retrying` are all that
    wait, calls that wait for something else than their next attempt among them."""

    succeeded: int = 0
    failed: int = 0
    running: int = 0
    retrying: int = 0


@dataclass(frozen=True, slots=True)
class StatusSource:
    """Everything `resources.projection.project` needs of one run."""

    run: RunView
    counts: StepCounts = field(default_factory=StepCounts)
    steps: tuple[StepView, ...] = ()
