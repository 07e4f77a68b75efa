"""How many pods one version of a pool should have. Asked by `pool`, for each version at each look.

Up at once, down slowly, never down on what is not known (invariant 8), never below what is being worked on.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Backlog:
    """Runs of one version: `ready` to be claimed, `running`, and `asleep` (waiting or delayed, they need no pod)."""

    ready: int = 0
    running: int = 0
    asleep: int = 0

    @property
    def awake(self) -> int:
        """Runs that need a slot now."""
        return self.ready + self.running

    @property
    def open(self) -> int:
        """Runs that have not ended."""
        return self.ready + self.running + self.asleep

    def __add__(self, other: Backlog) -> Backlog:
        return Backlog(self.ready + other.ready, self.running + other.running, self.asleep + other.asleep)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the pool's spec says about its size. Times in seconds."""

    min: int
    max: int
    target: int
    slots: int
    idle_after: float
    stabilisation: float


@dataclass(frozen=True, slots=True)
class Memory:
    """What the last decisions were, so that the next one can be slow to scale down.

    Lost at a restart, which is harmless: the first decision afterwards remembers the present replicas as wanted.
    """

    wanted: tuple[tuple[float, int], ...] = field(default=())
    busy_at: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """`replicas` to have now, the memory for next time, and a sentence on why for `.status.message`."""

    replicas: int
    memory: Memory
    why: str


def needed(backlog: Backlog, limits: Limits) -> int:
    """Pods that the runs awake fill, whatever the limits say: by target, and never fewer than busy pods need."""
    return max(_ceil(backlog.awake, limits.target), _ceil(backlog.running, limits.slots))


def current(
    replicas: int | None, backlog: Backlog | None, limits: Limits, memory: Memory, now: float, *, fixed: int | None
) -> Decision:
    """The version that new runs go to. `replicas` is what it has now, None before its Deployment exists.

    `fixed` is the number that a person or an autoscaler has set; it holds within min and max.
    """
    if fixed is not None:
        wish = _clamp(fixed, limits)
        why = f"spec.replicas asks for {fixed}"
        return Decision(wish, Memory(), why if wish == fixed else f"{why}; min and max make it {wish}")
    if backlog is None:
        keep = limits.min if replicas is None else replicas
        return Decision(keep, memory, "the backlog is not known: replicas stay as they are")
    wish = _clamp(needed(backlog, limits), limits)
    have = replicas or 0
    busy_at = now if backlog.awake or memory.busy_at is None else memory.busy_at
    first = memory.busy_at is None
    recent = ((now, have),) if first else _recent(memory, now, limits.stabilisation)
    remembered = Memory((*recent, (now, wish)), busy_at)
    if wish >= have:
        return Decision(wish, remembered, _why(backlog, wish, limits))
    highest = max(number for _, number in remembered.wanted)
    stabilised = min(have, highest)
    if stabilised == 0 and not backlog.awake and now - busy_at < limits.idle_after:
        return Decision(1, remembered, "idle: the last pod stays for spec.scaling.idleAfter")
    if stabilised > wish:
        return Decision(stabilised, remembered, f"scales down to {wish} when spec.scaling.stabilisation has passed")
    return Decision(wish, remembered, _why(backlog, wish, limits))


def draining(replicas: int, backlog: Backlog | None, limits: Limits) -> int:
    """An earlier version: pods for the runs that belong to it, none while they only sleep, up to max.

    It takes no new runs, so it goes down as its runs end; waking runs bring its pods back.
    """
    if backlog is None:
        return replicas
    return min(needed(backlog, limits), limits.max)


def _recent(memory: Memory, now: float, window: float) -> tuple[tuple[float, int], ...]:
    """The decisions within the window; of neighbours with one number only the later, so that it stays short."""
    kept: list[tuple[float, int]] = []
    for at, number in memory.wanted:
        if now - at >= window:
            continue
        if kept and kept[-1][1] == number:
            kept[-1] = (at, number)
        else:
            kept.append((at, number))
    return tuple(kept)


def _why(backlog: Backlog, wish: int, limits: Limits) -> str:
    need = needed(backlog, limits)
    if need > wish:
        return f"the runs would fill {need} pods, spec.scaling.max is {limits.max}"
    if need < wish:
        return f"spec.scaling.min is {limits.min}"
    return "enough for the runs that are ready or running" if wish else "no runs are ready or running"


def _clamp(number: int, limits: Limits) -> int:
    return max(limits.min, min(limits.max, number))


def _ceil(count: int, per: int) -> int:
    return -(-count // per)
