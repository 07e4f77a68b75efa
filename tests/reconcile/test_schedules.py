"""The operator fires schedules, too: where pools rest at no worker at all, nobody else would."""

from __future__ import annotations

from typing import Any

import asyncpg
import perdure

from tests.reconcile.harness import Place, eventually, running


async def test_a_schedule_ticks_where_no_worker_is(place: Place, conn: asyncpg.Connection[Any]) -> None:
    async with perdure.Client(place.url, place.namespace) as client:
        await client.schedules.create(perdure.Schedule("s", "* * * * *", "flows.hello"))
    await conn.execute("UPDATE perdure.schedules SET next_at = now(), decided = now() - interval '2 minutes'")

    async def started() -> list[Any]:
        return list(await conn.fetch("SELECT id FROM perdure.workflows WHERE schedule = 's' AND status = 10"))

    async with running(place.settings(), place.url):
        assert len(await eventually(started, "a run of the schedule")) == 1
