"""Schedules for the tests of them, and how their ticks come without a minute that passes: by what the row says."""

from typing import Any

import perdure
from perdure.api import workflow
from perdure.engine.registry import Registry
from perdure.store.firing import fire_due
from perdure.worker.link import Connection

EVERY_MINUTE = "* * * * *"
registry = Registry()


@workflow(name="s.report", registry=registry)
async def report(region: str) -> list[Any]:
    tick = perdure.scheduled_tick()
    child = await other.start()
    return [region, tick.schedule if tick else None, tick.tick.isoformat() if tick else None, await child.result()]


@workflow(name="s.other", registry=registry)
async def other() -> bool:
    return perdure.scheduled_tick() is None


def schedule(name: str = "s", cron: str = EVERY_MINUTE, **said: Any) -> perdure.Schedule:
    return perdure.Schedule(name, cron, report.prepare("eu"), **said)


async def due(conn: Connection, *names: str, ticks: int = 1) -> None:
    """As if nobody had looked at schedules of every minute for so many ticks."""
    await conn.execute(
        "UPDATE perdure.schedules SET next_at = now(),"
        " decided = date_trunc('minute', now()) - make_interval(mins => $2 - 1) - interval '1 second'"
        " WHERE name = ANY($1)",
        list(names) or ["s"],
        ticks,
    )


async def fired(conn: Connection, *names: str, ticks: int = 1) -> list[str]:
    """Have ticks come, and fire them: ids of the runs that were started."""
    await due(conn, *names, ticks=ticks)
    return [run.id for run in (await fire_due(conn)).runs if run.created]


async def row(conn: Connection, name: str = "s") -> Any:
    return await conn.fetchrow("SELECT * FROM perdure.schedules WHERE name = $1", name)


async def run_ids(conn: Connection) -> list[str]:
    return [each["id"] for each in await conn.fetch("SELECT id FROM perdure.workflows ORDER BY id")]
