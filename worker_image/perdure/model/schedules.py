"""Schedules as values: what one says, how it stands, the ids of its runs. Pure.

A schedule is a row that says when which workflow is started with what; its instants are called ticks. Each tick has one
id for its run, so that however many processes start it, and however often, there is one run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal, TypeVar

from perdure.errors import InvalidArgument
from perdure.model.start import NAME_MAX

E = TypeVar("E", bound=StrEnum)

PREFIX = "schedule:"
"""How the ids of the runs of schedules begin."""

_NAME = re.compile(rf"[A-Za-z0-9]([A-Za-z0-9._-]{{0,{NAME_MAX - 2}}}[A-Za-z0-9])?")
_ID = re.compile(rf"{PREFIX}.*/([^/]+)/(\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ)(~[0-9a-f]+)?", re.DOTALL)
_TICK = "%Y-%m-%dT%H:%M:%SZ"


class Overlap(StrEnum):
    """What a tick does while a run of its schedule has not ended."""

    ALLOW = "allow"
    """It starts its run beside it."""
    SKIP = "skip"
    """It starts none."""
    CANCEL_PREVIOUS = "cancel-previous"
    """It has that run cancelled, and starts its own when that has ended."""
    QUEUE_ONE = "queue-one"
    """It starts its run when that one has ended; ticks that come while one waits start none."""


class CatchUp(StrEnum):
    """What becomes of ticks that nobody started in time, because no worker or no database was there."""

    NONE = "none"
    """Nothing."""
    LATEST = "latest"
    """The latest of them is started."""
    ALL = "all"
    """Each of them is started, up to a hundred."""


OverlapChoice = Overlap | Literal["allow", "skip", "cancel-previous", "queue-one"]
CatchUpChoice = CatchUp | Literal["none", "latest", "all"]


@dataclass(frozen=True, slots=True)
class Rule:
    """When a schedule starts something. `window` and `jitter` are seconds."""

    cron: str
    time_zone: str
    overlap: Overlap
    catch_up: CatchUp
    window: float
    jitter: float


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """How a schedule stands. Instants are in UTC.

    `last_tick`: the latest tick that started a run. `next_tick`: the next one, None while it is paused or when there
    is none any more. `queued_tick`: waits for the end of the run before it. `skipped`: ticks that started nothing
    because of a run that had not ended; `missed`: because nobody was there in time. `problem`: why no worker could tell
    the next tick, None when all is well.
    """

    name: str
    workflow: str
    cron: str
    time_zone: str
    overlap: Overlap
    catch_up: CatchUp
    catch_up_window: float
    jitter: float
    pool: str
    queue: str
    priority: int
    owner: str
    paused: bool
    last_tick: datetime | None
    next_tick: datetime | None
    queued_tick: datetime | None
    skipped: int
    missed: int
    problem: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ScheduledTick:
    """What a run of a schedule stands for: the tick, in UTC, or the second at which it was `triggered`."""

    schedule: str
    tick: datetime
    triggered: bool


def schedule_name(value: str) -> str:
    """The name of a schedule. Raises `InvalidArgument`."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise InvalidArgument(
            f"the name of a schedule is 1 to {NAME_MAX} letters, digits, '-', '_' and '.', with a letter or a digit "
            f"at both ends, not {value!r}"
        )
    return value


def choice(kind: type[E], what: str, value: object) -> E:
    """The member of an enum, from itself or its value. Raises `InvalidArgument`."""
    try:
        return kind(str(value))
    except ValueError:
        known = ", ".join(repr(each.value) for each in kind)
        raise InvalidArgument(f"{what} is one of {known}, not {value!r}") from None


def run_id_of_tick(namespace: str, name: str, tick: datetime) -> str:
    """Id of the run of a tick: the same in every process."""
    return f"{PREFIX}{namespace}/{name}/{tick.astimezone(UTC).strftime(_TICK)}"


def run_id_of_trigger(namespace: str, name: str, now: datetime, token: str) -> str:
    """Id of a run that is started now, whatever the rule says; `token` is hexadecimal and makes it its own."""
    return f"{run_id_of_tick(namespace, name, now)}~{token}"


def tick_of(run_id: str) -> ScheduledTick | None:
    """What the run with this id stands for; None for one that no schedule started, a child of such a run as well."""
    found = _ID.fullmatch(run_id)
    if found is None:
        return None
    name, text, token = found.groups()
    try:
        tick = datetime.strptime(text, _TICK).replace(tzinfo=UTC)
    except ValueError:
        return None
    return ScheduledTick(name, tick, token is not None)
