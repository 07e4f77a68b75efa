"""What limits of a queue a ready run waits for: a sentence for each limit, and which of them is reached.

Pure; asked by `waiting`. Sentences hold the limits, which do not change by themselves, and not how many runs there are.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.model.queues import ReachedLimits
from perdure.model.rows import WaitingFor
from perdure.resources.conditions import WaitKind


def paused(queue: ReachedLimits) -> WaitingFor:
    """For a run of a paused queue."""
    message = f'queue {queue.name} is paused; client.queues.resume("{queue.name}") lets it go on'
    return _wait(WaitKind.QUEUE_PAUSED, queue, message)


def reached(queue: ReachedLimits, partition_key: str, begun: bool, workers: Iterable[str]) -> WaitingFor | None:
    """What keeps a run of this partition from being taken by one of these workers; None when nothing does.

    `begun`: it has begun before, so the rate does not hold for it.
    """
    sentences = _sentences(queue, partition_key)
    if queue.full:
        return sentences["concurrency"]
    if partition_key in queue.full_partitions:
        return sentences["partition"]
    if queue.full_workers and queue.full_workers.issuperset(workers):
        return sentences["worker"]
    if queue.spent and not begun:
        return sentences["rate"]
    return None


def may_say(queue: ReachedLimits, partition_key: str, stored: WaitingFor) -> bool:
    """Whether this is what a limit of the queue says when it is reached: then that is what it waits for, also while
    a place is free for a moment and somebody is about to take it."""
    return stored in _sentences(queue, partition_key).values()


def _sentences(queue: ReachedLimits, partition_key: str) -> dict[str, WaitingFor]:
    """For each limit that the queue has."""
    found = {}
    if queue.limits.concurrency is not None:
        found["concurrency"] = _full(queue, queue.limits.concurrency, "at once")
    if queue.limits.partition_concurrency is not None:
        which = f"of partition {partition_key}" if partition_key else "without a partition key"
        found["partition"] = _full(queue, queue.limits.partition_concurrency, f"{which} at once")
    if queue.limits.worker_concurrency is not None:
        found["worker"] = _full(queue, queue.limits.worker_concurrency, "of each worker at once")
    if (rate := queue.limits.rate) is not None:
        found["rate"] = _wait(
            WaitKind.RATE_LIMIT,
            queue,
            f"queue {queue.name} lets {_runs(rate.runs)} begin in {rate.seconds:g} s, and so many have",
        )
    return found


def _full(queue: ReachedLimits, runs: int, which: str) -> WaitingFor:
    message = f"queue {queue.name} is at its limit: it lets {_runs(runs)} {which} run"
    return _wait(WaitKind.QUEUE_LIMIT, queue, message)


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"


def _wait(kind: WaitKind, queue: ReachedLimits, message: str) -> WaitingFor:
    return WaitingFor(kind=kind.value, name=queue.name, message=message)
