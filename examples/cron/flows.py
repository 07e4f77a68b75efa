"""A report for every minute, started by the clock: the schedule is a row in the database, and any worker fires it.

The pool's bootstrap hook says which schedules there are, before the first run; so what is deployed is what is
scheduled. Look at them with `client.schedules.list()`, start one now with `client.schedules.trigger("minutely")`.
"""

from __future__ import annotations

import os

import perdure


@perdure.step
async def count_visits(region: str, minute: str) -> int:
    """What is to be reported of that minute."""
    return len(region) + len(minute)


@perdure.workflow(name="visits.report")
async def report(region: str) -> str:
    """The report of one tick, whenever it comes to run."""
    tick = perdure.scheduled_tick()
    minute = f"{tick.tick:%Y-%m-%d %H:%M}" if tick else "now"
    visits = await count_visits(region, minute)
    return f"{region} {minute}: {visits} visits"


async def schedules() -> None:
    """Make the schedules what they are here: new ones come, changed ones change, those that are gone go."""
    namespace = os.environ.get("PERDURE_NAMESPACE", "default")
    pool = os.environ.get("PERDURE_POOL", "default")
    async with perdure.Client(namespace=namespace, pool=pool) as client:
        await client.schedules.apply(
            [
                perdure.Schedule(
                    "minutely",
                    "* * * * *",
                    report.options(timeout=300).prepare("eu"),
                    overlap="skip",
                    catch_up="latest",
                ),
                perdure.Schedule(
                    "nightly",
                    "30 2 * * *",
                    report.prepare("us"),
                    time_zone="America/New_York",
                    catch_up="all",
                    catch_up_window=6 * 3600,
                ),
            ],
            owner="visits",
        )
