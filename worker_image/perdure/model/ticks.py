"""When a cron expression ticks, over changes of clocks as well: pure, it is given the time.

Cron's own rule, that of Debian, for the two nights a year: a time of day that a zone leaves out ticks as soon as the
gap is over, one that comes twice ticks the first time only. An expression whose minute or hour begins with `*` means
"every so often": it goes by the time that passes, not by what clocks show. All ticks are whole minutes, in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from perdure.errors import InvalidArgument

CRON_MAX = 255
"""Longest expression in characters: every minute named singly is no longer."""

FIELDS = 5
"""Minute, hour, day of month, month, day of week."""

_FIRST_LOOK = timedelta(hours=1)
_WIDER = 4
_SOME_DAY = datetime(2000, 1, 1, tzinfo=UTC)


def zone_of(name: str) -> ZoneInfo:
    """The time zone of this name. Raises `InvalidArgument` for one that is not known here."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise InvalidArgument(
            f"there is no time zone {name!r}: names are as in Europe/Berlin, or UTC; the IANA list has them"
        ) from None


def check(cron: str, time_zone: str) -> None:
    """Raises `InvalidArgument` for an expression that cannot be read or never ticks, and for an unknown zone."""
    if not isinstance(cron, str) or len(cron) > CRON_MAX:
        raise InvalidArgument(f"cron is a text of at most {CRON_MAX} characters, not {str(cron)[:CRON_MAX]!r}")
    zone_of(time_zone)
    if next_tick(cron, time_zone, _SOME_DAY) is None:
        raise InvalidArgument(f"the cron expression {cron!r} never ticks: there is no such day")


def ticks(cron: str, time_zone: str, after: datetime) -> Iterator[datetime]:
    """The ticks later than `after`, in order, each once. Raises `InvalidArgument`."""
    if len(cron.split()) != FIELDS:
        raise InvalidArgument(
            f"a cron expression has {FIELDS} fields (minute, hour, day of month, month, day of week), "
            f"{cron!r} has {len(cron.split())}"
        )
    try:
        found = CronSim(cron, after.astimezone(zone_of(time_zone)))
    except CronSimError as error:
        raise InvalidArgument(f"the cron expression {cron!r} cannot be read: {error}") from None
    last = after
    for local in found:
        # In the nights of a change several local times are one instant, and the first may lie before `after`.
        tick = local.astimezone(UTC)
        if tick > last:
            last = tick
            yield tick


def next_tick(cron: str, time_zone: str, after: datetime) -> datetime | None:
    """The first tick later than `after`; None when there is none for fifty years. Raises `InvalidArgument`."""
    return next(ticks(cron, time_zone, after), None)


def ticks_within(cron: str, time_zone: str, first: datetime, last: datetime, most: int) -> list[datetime]:
    """The ticks from `first` to `last`, both included, at most `most`. Raises `InvalidArgument`."""
    before = first - timedelta(microseconds=1)
    return list(islice(takewhile(lambda tick: tick <= last, ticks(cron, time_zone, before)), most))


def latest_ticks(cron: str, time_zone: str, after: datetime, until: datetime, most: int) -> list[datetime]:
    """The last ticks later than `after` and not later than `until`, in order, at most `most`.

    Looks further and further back, so that after years without anybody it costs no more than after an hour. Raises
    `InvalidArgument`.
    """
    look = _FIRST_LOOK
    while after < until:
        begin = after if until - after <= look else until - look
        found = list(takewhile(lambda tick: tick <= until, ticks(cron, time_zone, begin)))
        if begin == after or len(found) >= most:
            return found[-most:]
        look *= _WIDER
    return []
