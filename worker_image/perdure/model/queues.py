"""The limits of a queue as programs say and see them: pure, checked when they are built.

Said with `client.queues`, kept by the claims of the workers. A queue that nobody has said anything of has no limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from perdure.errors import InvalidArgument
from perdure.model.start import NAME_MAX, Seconds, check_text, positive_seconds

LIMIT_MAX = 2**31 - 1
"""The columns are integers of four bytes."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """How many runs may begin in a time: a bucket of `runs` tokens that fills evenly within `period`, in seconds or as
    a timedelta. A full bucket lets `runs` begin at once, then one each `period / runs`. Raises `InvalidArgument`."""

    runs: int
    period: Seconds

    def __post_init__(self) -> None:
        _check_limit("runs", self.runs)
        object.__setattr__(self, "period", positive_seconds("period", self.period))

    @property
    def seconds(self) -> float:
        """The period in seconds."""
        return positive_seconds("period", self.period)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What may run of a queue at once, and begin in a time; None: as much as there are slots. Raises `InvalidArgument`.

    `concurrency`: runs in all. `worker_concurrency`: runs of one worker. `partition_concurrency`: runs of one
    partition; those that were started without a partition key are one, too. `rate`: beginnings of runs.
    """

    concurrency: int | None = None
    worker_concurrency: int | None = None
    partition_concurrency: int | None = None
    rate: RateLimit | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "worker_concurrency", "partition_concurrency"):
            value = getattr(self, name)
            if value is not None:
                _check_limit(name, value)
        if self.rate is not None and not isinstance(self.rate, RateLimit):
            raise InvalidArgument(f"rate is a RateLimit, not {self.rate!r}")


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue with its row in the database. Instants are the database's.

    `paused`: nothing of it is taken. `generation` counts the changes of its limits and its pauses. `managed_by` names
    the resource that says the limits, and is empty where programs do.
    """

    namespace: str
    name: str
    limits: QueueLimits
    paused: bool
    generation: int
    managed_by: str
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class ReachedLimits:
    """The limits of a queue, and which of them are reached: in all (`full`), of which workers and partitions, by the
    rate (`spent`: it lets none begin now)."""

    name: str
    limits: QueueLimits
    paused: bool
    full: bool = False
    full_workers: frozenset[str] = frozenset()
    full_partitions: frozenset[str] = frozenset()
    spent: bool = False


def check_queue(name: str) -> str:
    """The name. Raises `InvalidArgument` for what cannot be the name of a queue."""
    if name is None:
        raise InvalidArgument("the name of a queue is a text, not None")
    check_text("the name of a queue", name, NAME_MAX)
    return name


def _check_limit(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{name} is a whole number, not {value!r}")
    if not 1 <= value <= LIMIT_MAX:
        raise InvalidArgument(f"{name} must be 1 to {LIMIT_MAX}, not {value}; to let nothing run, pause the queue")
