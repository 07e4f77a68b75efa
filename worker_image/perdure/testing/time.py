"""Time, as a test has it pass: by moving every instant in its database back, once nothing is left to do.

Used by `Environment`. No clock is touched, neither Postgres' nor Python's: a run that sleeps until tomorrow is moved to
a time that has come, and with it its deadline, its attempts, its schedule. What leaves the database as an instant for
workflows (`perdure.now`, the ticks of schedules) is moved forward by the same amount. Promises: nothing is skipped
while a run works or could; what is due on the way happens in its order, each at its own time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg

from perdure.store import sweeps, wakes, workers
from perdure.store.firing import fire_due
from perdure.testing.statements import shifts, sql

Connection: TypeAlias = "asyncpg.Connection[Any]"

PAUSE = 0.005
"""Seconds between looks whether anything is left to do: a step takes about as long."""

LIMIT = 200
"""Runs moved in one statement, as by the sweeps."""

NOTHING = timedelta()

MOST_HOPS = 10_000
"""Instants in one skip, a minute or two of the real time: above, a workflow does not come to an end."""


class TimeStands(AssertionError):
    """A test wanted time to pass, and it cannot: a run does not come to rest, or waits for what no time brings."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the worker of the test takes: see `look.sql`."""

    namespace: str
    pool: str
    queues: Sequence[str]
    manifest: Sequence[str]
    version: str


@dataclass(frozen=True, slots=True)
class Look:
    """How things stand. `busy` and `waits` name runs; `runs_in` and `ticks_in`: until time brings something to a run,
    and until a schedule is to be looked at, None when it never does."""

    busy: tuple[str, ...]
    waits: tuple[str, ...]
    runs_in: timedelta | None
    ticks_in: timedelta | None

    def until(self) -> timedelta | None:
        """The length of the next hop; none when no time is left that counts."""
        lengths = [each for each in (self.runs_in, self.ticks_in) if each is not None]
        return max(NOTHING, min(lengths)) if lengths else None


class Time:
    """See the module. `wake` has the worker look for runs, `at_work` says whether it holds any."""

    def __init__(
        self, connection: Connection, scope: Scope, *, wake: Callable[[], None], at_work: Callable[[], bool]
    ) -> None:
        self.skipped = NOTHING
        """How much in all."""
        self.passing = asyncio.Lock()
        """Held while somebody has time pass, from look to shift: what two skip at once would be skipped twice."""
        self._connection = connection
        self._scope = scope
        self._wake = wake
        self._at_work = at_work
        self._turn = asyncio.Lock()
        self._behind = ""

    async def rest(self, patience: float) -> Look:
        """Wait until no run works or could; how things stand then. Raises `TimeStands` after `patience` seconds."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + patience
        while True:
            look = await self.rested()
            if look is not None:
                return look
            if loop.time() > ends:
                seen = await self._look()
                raise TimeStands(
                    f"after {patience:g} s there still is something to do: {'; '.join(seen.busy) or 'runs change'}"
                )
            await asyncio.sleep(PAUSE)

    async def skip(self, length: timedelta, patience: float) -> None:
        """Let so much time pass, and wait until what it has brought is done."""
        left = length
        async with self.passing:
            for _ in range(MOST_HOPS):
                look = await self.rest(patience)
                if left <= NOTHING:
                    return
                until = look.until()
                hop = left if until is None else min(left, until)
                await self._shift(hop)
                left -= hop
        raise TimeStands(f"{MOST_HOPS} instants in {length}: {'; '.join(look.waits)}")

    async def skip_all(self, most: timedelta, patience: float) -> timedelta:
        """Let time pass until no run waits for any; how much that was. Ticks of schedules on the way start their runs.
        Raises `TimeStands` when it would be more than `most`."""
        async with self.passing:
            before = self.skipped
            for _ in range(MOST_HOPS):
                look = await self.rest(patience)
                until = look.until()
                if look.runs_in is None or until is None:
                    return self.skipped - before
                if self.skipped - before + until > most:
                    raise TimeStands(f"runs still wait for a time after {most}: {'; '.join(look.waits)}")
                await self._shift(until)
        raise TimeStands(f"{MOST_HOPS} instants: {'; '.join(look.waits)}")

    async def ended(self, runs: Sequence[str]) -> list[str]:
        """Those of the runs that have ended."""
        async with self._turn:
            return [row["id"] for row in await self._connection.fetch(sql("ended"), list(runs))]

    async def hop(self, look: Look) -> None:
        """To the next instant that counts, if there is one. For whoever holds `passing`."""
        until = look.until()
        if until is not None:
            await self._shift(until)

    async def rested(self) -> Look | None:
        """How things stand when there is nothing to do; None while there is."""
        async with self._turn:
            if self._at_work():
                return None
            look = await self._seen()
            if look.busy or await self._sweep() or self._at_work():
                return None
            return look

    # -- one look, one shift

    async def _look(self) -> Look:
        async with self._turn:
            return await self._seen()

    async def _seen(self) -> Look:
        scope = self._scope
        row = await self._connection.fetchrow(
            sql("look"), scope.namespace, scope.pool, list(scope.queues), list(scope.manifest), scope.version
        )
        assert row is not None
        return Look(tuple(row["busy"]), tuple(row["waits"]), row["runs_in"], row["ticks_in"])

    async def _sweep(self) -> bool:
        """What the sweeps of the worker would do in their next round; whether there was anything."""
        connection = self._connection
        moved = await wakes.announce_untold(connection, LIMIT, 0.0)
        ended, self._behind = await wakes.announce_ended(connection, self._behind, LIMIT, 0.0)
        # One after the other, as each may be what the next one needs.
        done = [
            len(moved) + len(ended),
            len(await sweeps.wake_due(connection, LIMIT)),
            len(await sweeps.cancel_overdue(connection, LIMIT)),
            (await fire_due(connection, self.skipped)).seen,
            await wakes.cascade(connection, LIMIT),
            await self._take_over(),
        ]
        if not any(done):
            return False
        self._wake()
        return True

    async def _take_over(self) -> int:
        owners = await workers.dead_with_runs(self._connection, LIMIT)
        return len(await workers.move(self._connection, owners, LIMIT)) if owners else 0

    async def take_over(self) -> None:
        """Give the runs of workers that are dead to the others, as the sweeps do."""
        async with self._turn:
            if await self._take_over():
                self._wake()

    async def _shift(self, length: timedelta) -> None:
        async with self._turn:
            if length > NOTHING:
                async with self._connection.transaction():
                    for statement in shifts():
                        await self._connection.execute(statement, length)
                self.skipped += length
        self._wake()
