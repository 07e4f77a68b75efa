"""Schedules: runs that are started by the clock. What a program says of them; workers fire them (`store/firing`).

Reached as `Client.schedules`. What these methods change is durable on return, and may be done again when it is not
known whether it was done: `StoreUnavailable` is safe to answer with the same call.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import asyncpg

from perdure.api.starts import PreparedStart
from perdure.client.database import Database
from perdure.client.handle import Handle
from perdure.client.news import News
from perdure.client.starts import arguments_of, row_of
from perdure.engine.codec import encode, same_input
from perdure.engine.context import current_scope
from perdure.engine.encoding import MARK
from perdure.engine.serialization import Serializers
from perdure.errors import ConflictingSchedule, InsideWorkflow, InvalidArgument, NonExistentSchedule
from perdure.model.schedules import (
    CatchUp,
    CatchUpChoice,
    Overlap,
    OverlapChoice,
    Rule,
    ScheduleInfo,
    choice,
    run_id_of_tick,
    run_id_of_trigger,
    schedule_name,
)
from perdure.model.start import ID_MAX, Seconds, StartOptions, check_text, positive_seconds
from perdure.model.ticks import check, ticks_within
from perdure.store import schedules as store
from perdure.store.pool import transaction
from perdure.store.schedules import ScheduleRow, Sight, Started

WINDOW_SECONDS = 3600.0
"""How late a tick is started when nothing else is said: longer than most outages, short enough that nobody is surprised
the next morning."""

WINDOW_MAX = 366 * 86400.0
"""Longest window: a yearly tick may be made up for."""

JITTER_MAX = 3600.0
"""Longest jitter: what is to be spread further than an hour is another schedule."""

OWNER_MAX = 255
"""Longest name of an owner in characters."""

BACKFILL_MAX = 10_000
"""Ticks of one backfill: a week of minutes. More is several calls."""

PAGE = 500
"""Schedules read, and ticks started, in one statement: some ten milliseconds."""

APPLY_MAX = 1000
"""Schedules applied together: one transaction, whose size is bounded by that of a statement."""

USABLE = frozenset({"queue", "pool", "priority", "timeout", "partition_key", "attributes"})
"""Options of a start that hold for each run of a schedule. The others are about a single run."""


@dataclass(frozen=True)
class Schedule:
    """A workflow that is started at the ticks of a cron expression. Raises `InvalidArgument` for what cannot be used.

    perdure.Schedule("nightly", "30 2 * * *", report.prepare("eu"), time_zone="Europe/Berlin", overlap="skip")

    `name`: 1 to 63 letters, digits, '-', '_' and '.'; one of its kind in the namespace. `cron`: five fields, as in
    crontab(5). `start`: what is started, with its options; or the name of a workflow, with its `arguments` by position
    or by name. `time_zone`: of the IANA list. Where clocks change, a time that is left out ticks right after the gap,
    one that comes twice ticks once, and an expression whose minute or hour begins with `*` goes on by the time that
    passes.

    `overlap`: what a tick does while a run of the schedule has not ended (see `Overlap`). `catch_up`: which ticks are
    started that nobody started in time, because no worker or no database was there (see `CatchUp`), if they are not
    longer ago than `catch_up_window`. A tick that is at most a minute late is in time. `jitter`: up to how long after
    its tick a run is started, the same for a tick in every process. Times are seconds or timedelta.
    """

    name: str
    cron: str
    start: PreparedStart[Any] | str
    arguments: Sequence[Any] | Mapping[str, Any] = ()
    time_zone: str = field(default="UTC", kw_only=True)
    overlap: OverlapChoice = field(default=Overlap.ALLOW, kw_only=True)
    catch_up: CatchUpChoice = field(default=CatchUp.LATEST, kw_only=True)
    catch_up_window: Seconds = field(default=WINDOW_SECONDS, kw_only=True)
    jitter: Seconds = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        schedule_name(self.name)
        check(self.cron, self.time_zone)
        choice(Overlap, "overlap", self.overlap)
        choice(CatchUp, "catch_up", self.catch_up)
        _bounded("catch_up_window", self.catch_up_window, WINDOW_MAX)
        if self.jitter != 0:
            _bounded("jitter", self.jitter, JITTER_MAX)
        if isinstance(self.start, PreparedStart):
            if self.arguments != ():
                raise InvalidArgument("a prepared start has its arguments already")
            if self.start.options.choice is not None:
                raise InvalidArgument(
                    "a schedule does not say how values are written: its runs are as their workflow is registered "
                    "(@perdure.workflow(serialization=…))"
                )
            if unusable := sorted(self.start.options.said().keys() - USABLE):
                raise InvalidArgument(f"a schedule starts many runs: the option {unusable[0]} is that of a single one")
        elif isinstance(self.start, str):
            check_text("workflow", self.start, ID_MAX)
            arguments_of(self.start, self.arguments)
        else:
            raise InvalidArgument("start is what `workflow.prepare(…)` gives, or the name of a workflow")

    def row(self, pool: str) -> ScheduleRow:
        """The row, with `pool` where the start does not say. Its input is JSON yet. Raises `EncodingFailed`."""
        start = self.start
        if isinstance(start, str):
            given = arguments_of(start, self.arguments)
            start = PreparedStart(start, given, encode(given, f"the input of workflow {start}"), StartOptions(), None)
        run = row_of(start, pool)
        rule = Rule(
            " ".join(self.cron.split()),
            self.time_zone,
            Overlap(self.overlap),
            CatchUp(self.catch_up),
            positive_seconds("catch_up_window", self.catch_up_window),
            0.0 if self.jitter == 0 else positive_seconds("jitter", self.jitter),
        )
        return ScheduleRow(
            name=self.name,
            rule=rule,
            workflow=run.workflow,
            input=run.input,
            pool=run.pool,
            queue=run.queue,
            priority=run.priority,
            timeout=run.timeout,
            partition_key=run.partition_key,
            attributes=run.attributes,
            max_run_attempts=run.max_run_attempts,
        )


class Schedules:
    """The schedules of a client's namespace. All raise `InvalidArgument`, `StoreUnavailable`, `ClientClosed`."""

    def __init__(
        self,
        database: Database,
        news: News,
        namespace: str,
        pool: str,
        handle: Callable[[str], Handle[Any]],
        serializers: Serializers,
    ) -> None:
        self._database = database
        self._news = news
        self._namespace = namespace
        self._pool = pool
        self._handle = handle
        self._serializers = serializers

    async def create(self, schedule: Schedule) -> None:
        """Make a new schedule; its first tick is the first one after now. The same one again is no error.

        Raises `ConflictingSchedule` when there is another one of that name; `InsideWorkflow` in a run.
        """
        _outside_of_runs("create")
        await self._apply([schedule], "", change=False)

    async def apply(self, schedules: Iterable[Schedule], *, owner: str = "") -> None:
        """Make these schedules what they say, all of them or none: new ones are made, others changed.

        One whose rule (cron, time zone) changes ticks by the new one from now on; one that is paused stays so.
        `owner`: whose whole set these are; what it applied before and has no more is deleted. Without one nothing is
        deleted. Runs that are there go on in any case. At most a thousand. Raises `ConflictingSchedule` when one
        belongs to another owner; `InsideWorkflow` in a run.
        """
        _outside_of_runs("apply")
        if owner != "":
            check_text("owner", owner, OWNER_MAX)
        await self._apply(list(schedules), owner, change=True)

    async def get(self, name: str) -> ScheduleInfo:
        """How a schedule stands. Raises `NonExistentSchedule`."""
        return (await self._sight(name)).info

    async def list(self) -> tuple[ScheduleInfo, ...]:
        """All schedules of the namespace, by name. Raises `StoreUnavailable`, `InsideWorkflow` in the body of a run."""
        _outside_of_bodies("list")
        found: list[ScheduleInfo] = []
        while True:
            after = found[-1].name if found else ""
            page = await self._database.persist(store.read, self._namespace, after, PAGE)
            found += [each.info for each in page]
            if len(page) < PAGE:
                return tuple(found)

    async def pause(self, name: str) -> None:
        """Start nothing at its ticks until `resume`. Runs that are there go on; a tick that waits for one is given up.
        Raises `NonExistentSchedule`."""
        await self._pause(name, paused=True)

    async def resume(self, name: str) -> None:
        """Go on with the first tick after now; those that came during the pause start nothing. Raises
        `NonExistentSchedule`."""
        await self._pause(name, paused=False)

    async def delete(self, name: str) -> bool:
        """Remove a schedule; whether it was there (also False when a first answer was lost). Runs that it has go on.

        Raises `InvalidArgument` for what cannot be a name, `StoreUnavailable`, `InsideWorkflow` in the body of a run.
        """
        _outside_of_bodies("delete")
        return await self._database.persist(store.delete, self._namespace, schedule_name(name))

    async def trigger(self, name: str) -> Handle[Any]:
        """Start a run of the schedule now, whatever its rule, its pause and its other runs; its handle.

        It counts among the schedule's runs: a tick looks at whether it has ended. Raises `NonExistentSchedule`;
        `InsideWorkflow` in a run.
        """
        _outside_of_runs("trigger")
        sight = await self._sight(name)
        run_id = run_id_of_trigger(self._namespace, name, sight.now, secrets.token_hex(8))
        await self._start(name, [run_id])
        return self._handle(run_id)

    async def backfill(self, name: str, start: datetime, end: datetime) -> tuple[Handle[Any], ...]:
        """Start the runs of all ticks from `start` to `end`, both included, that have none yet; handles of all of them.

        Both are instants with a time zone, and lie in the past. Overlap and catch-up do not hold for these: limits are
        those of the queue. At most ten thousand ticks. When this raises, the runs of earlier ticks may be there; done
        again it starts what is missing. Raises `NonExistentSchedule`; `InsideWorkflow` in a run.
        """
        _outside_of_runs("backfill")
        first, last = _instant("start", start), _instant("end", end)
        if first > last:
            raise InvalidArgument(f"a backfill goes from the earlier to the later instant: {start} is after {end}")
        sight = await self._sight(name)
        if last > sight.now:
            raise InvalidArgument(f"a backfill is for ticks of the past, and {end} is still to come")
        # Beside the loop: thousands of ticks take some tenths of a second.
        ticks = await asyncio.to_thread(
            ticks_within, sight.info.cron, sight.info.time_zone, first, last, BACKFILL_MAX + 1
        )
        if len(ticks) > BACKFILL_MAX:
            raise InvalidArgument(f"there are more than {BACKFILL_MAX} ticks from {start} to {end}: take them in parts")
        ids = [run_id_of_tick(self._namespace, name, tick) for tick in ticks]
        for begin in range(0, len(ids), PAGE):
            await self._start(name, ids[begin : begin + PAGE])
        return tuple(self._handle(run_id) for run_id in ids)

    async def _apply(self, schedules: Sequence[Schedule], owner: str, *, change: bool) -> None:
        if len(schedules) > APPLY_MAX:
            raise InvalidArgument(f"{len(schedules)} schedules are more than {APPLY_MAX}, which go together")
        rows: dict[str, ScheduleRow] = {}
        for schedule in schedules:
            if schedule.name in rows:
                raise InvalidArgument(f"the schedule {schedule.name} is there twice")
            rows[schedule.name] = schedule.row(self._pool)
        stored = [await self._stored(schedule, rows[schedule.name]) for schedule in schedules]
        if not change:
            stored = [await self._as_before(row, rows[row.name].input) for row in stored]
        await self._database.persist(self._apply_rows, stored, owner, change=change)

    async def _stored(self, schedule: Schedule, row: ScheduleRow) -> ScheduleRow:
        definition = schedule.start.definition if isinstance(schedule.start, PreparedStart) else None
        choice = None if definition is None else definition.serialization
        what = f"the input of workflow {row.workflow}"
        return replace(row, input=await self._serializers.write(row.input, what, choice))

    async def _as_before(self, row: ScheduleRow, text: str) -> ScheduleRow:
        """With the input that is stored, where a serializer has written the same one otherwise. `text` is its JSON."""
        if row.input[:1] != MARK:
            return row
        found = await self._database.persist(store.inputs, self._namespace, [row.name])
        for before in found.values():
            if same_input(None, text, await self._serializers.fetch(before, f"the input of schedule {row.name}")):
                return replace(row, input=before)
        return row

    async def _apply_rows(
        self, connection: asyncpg.Connection[Any], rows: Sequence[ScheduleRow], owner: str, *, change: bool
    ) -> None:
        async with transaction(connection):
            done = await store.apply(connection, self._namespace, owner, rows, change=change)
            if refused := sorted({each.name for each in rows} - done):
                why = "it belongs to another owner" if change else "there is one that says something else"
                raise ConflictingSchedule(f"the schedule {refused[0]} cannot be made so: {why}; nothing was changed")
            if owner:
                await store.prune(connection, self._namespace, owner, [each.name for each in rows])

    async def _sight(self, name: str) -> Sight:
        _outside_of_bodies("get")
        found = await self._database.persist(store.get, self._namespace, schedule_name(name))
        if found is None:
            raise self._nonexistent(name)
        return found

    async def _pause(self, name: str, *, paused: bool) -> None:
        _outside_of_bodies("pause" if paused else "resume")
        if not await self._database.persist(store.pause, self._namespace, schedule_name(name), paused=paused):
            raise self._nonexistent(name)

    async def _start(self, name: str, ids: Sequence[str]) -> None:
        started: list[Started] = await self._database.persist(
            store.start, [(self._namespace, name, run_id) for run_id in ids]
        )
        if len(started) < len(ids):
            raise self._nonexistent(name)
        self._news.ready({(each.namespace, each.pool) for each in started})

    def _nonexistent(self, name: str) -> NonExistentSchedule:
        return NonExistentSchedule(f"there is no schedule {name} in namespace {self._namespace}")


def _bounded(what: str, value: Seconds, most: float) -> None:
    seconds = positive_seconds(what, value)
    if seconds > most:
        raise InvalidArgument(f"{what} is at most {most:g} seconds, not {seconds:g}")


def _instant(what: str, value: datetime) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidArgument(f"{what} is a datetime with a time zone, not {value!r}")
    return value.astimezone(UTC)


def _outside_of_runs(what: str) -> None:
    """What starts runs or says that some are to be started: nothing of it is recorded in a run."""
    scope = current_scope.get()
    if scope is not None:
        where = "the body" if scope.index is None else f"step {scope.name}"
        raise InsideWorkflow(
            f"schedules.{what} was called in {where} of run {scope.execution.claimed.id}: say from outside of runs "
            "what schedules there are"
        )


def _outside_of_bodies(what: str) -> None:
    scope = current_scope.get()
    if scope is not None and scope.index is None:
        raise InsideWorkflow(
            f"schedules.{what} was called in the body of run {scope.execution.claimed.id}, which would not record "
            "it; do it in a step"
        )
