"""Fires schedules: starts the runs of ticks that have come. Every worker does it, so that nothing else need run; the
operator does it, too, since pools that rest at no worker at all are brought back by the runs.

Used by the sweeps, on their connections. What is to be done is decided in `model/firing`. One transaction holds the
schedule's row, reads what of it still runs, starts runs and writes down what is settled; so of any number of workers
one fires a tick, and one that dies over it leaves the tick to the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import asyncpg

from perdure.errors import InvalidArgument
from perdure.model.firing import Firing, Standing, fire
from perdure.model.schedules import Overlap, run_id_of_tick
from perdure.model.states import CancelMode
from perdure.store import runs
from perdure.store import schedules as store
from perdure.store.pool import transaction
from perdure.store.schedules import Decided, Started
from perdure.telemetry.logs import get_logger

Connection: TypeAlias = "asyncpg.Connection[Any]"

log = get_logger(__name__)

LIMIT = 20
"""Schedules fired in one transaction: some 10 ms with a run each; those of one minute follow at once."""

CANCEL_REASON = "the next tick of its schedule has come"


@dataclass(frozen=True, slots=True)
class Fired:
    """What became of schedules that were due: `seen` of them; runs, some of which were there before."""

    seen: int
    runs: tuple[Started, ...] = ()
    skipped: int = 0
    missed: int = 0

    @property
    def outcomes(self) -> dict[str, int]:
        """Ticks by what became of them, those that there are."""
        created = sum(run.created for run in self.runs)
        found = {"started": created, "skipped": self.skipped, "missed": self.missed}
        return {outcome: ticks for outcome, ticks in found.items() if ticks}


NOTHING = Fired(0)
NOT_AHEAD = timedelta()


async def fire_due(connection: Connection, skipped: timedelta = NOT_AHEAD) -> Fired:
    """Fire up to some `LIMIT` schedules that are due. Durable on return; zero `seen`: nothing is left that is due.

    `skipped`: by how much the time of the runs is ahead of the database's clock, in tests that skip time.
    """
    # Looked at before a transaction is opened: mostly there is nothing.
    if not await store.due(connection, LIMIT):
        return NOTHING
    async with transaction(connection):
        due = await store.due(connection, LIMIT)
        careful = [each for each, _ in due if each.rule.overlap is not Overlap.ALLOW or each.queued is not None]
        names = [(each.namespace, each.name) for each in careful]
        running = await store.open_runs(connection, names) if names else {}
        decisions: list[Decided] = []
        for schedule, now in due:
            busy = (schedule.namespace, schedule.name) in running
            decisions.append(decide(schedule.moved(skipped), now + skipped, busy=busy))
            # After an outage one may take twenty milliseconds, and the loop has others to serve.
            await asyncio.sleep(0)
        for each in decisions:
            if each.firing.cancel:
                for run_id in running[each.schedule.namespace, each.schedule.name]:
                    await runs.cancel(connection, run_id, CancelMode.GRACEFUL, CANCEL_REASON)
        wanted = wanted_runs(decisions)
        started = await store.start(connection, wanted) if wanted else []
        if decisions:
            await store.decided(connection, [each.moved(-skipped) for each in decisions])
    for each in decisions:
        tell(each)
    return Fired(
        len(due),
        tuple(started),
        sum(each.firing.skipped for each in decisions),
        sum(each.firing.missed for each in decisions),
    )


def decide(schedule: Standing, now: datetime, *, busy: bool) -> Decided:
    """What is to be done. A rule that cannot be read here is a problem of that schedule and of no other."""
    try:
        return Decided(schedule, fire(schedule, now, busy=busy))
    except InvalidArgument as error:
        nothing = Firing((), schedule.queued, False, schedule.decided, None, None, 0, 0)
        return Decided(schedule, nothing, error.message)


def wanted_runs(decisions: Sequence[Decided]) -> list[tuple[str, str, str]]:
    """The runs to start, as (namespace, schedule, id), those of earlier ticks first."""
    found = [(tick, each.schedule) for each in decisions for tick in each.firing.start]
    found.sort(key=lambda pair: pair[0])
    return [
        (schedule.namespace, schedule.name, run_id_of_tick(schedule.namespace, schedule.name, tick))
        for tick, schedule in found
    ]


def tell(decided: Decided) -> None:
    """Say what nobody would find otherwise."""
    schedule, firing = decided.schedule, decided.firing
    if decided.problem is not None:
        log.warning(
            "a schedule cannot be read", namespace=schedule.namespace, schedule=schedule.name, why=decided.problem
        )
    if firing.missed:
        log.warning(
            "ticks of a schedule were missed",
            namespace=schedule.namespace,
            schedule=schedule.name,
            missed=firing.missed,
            catch_up=str(schedule.rule.catch_up),
        )
