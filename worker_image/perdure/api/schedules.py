"""What a run of a schedule asks of it."""

from __future__ import annotations

from perdure.engine.context import current
from perdure.model.schedules import ScheduledTick, tick_of


def scheduled_tick() -> ScheduledTick | None:
    """The tick for which this run was started, by its schedule's rule and not by when it came to run; None for a run
    that no schedule has started.

    It is part of the run's id, so a replay gets the same. Raises `LookupError` outside a run.
    """
    return tick_of(current().run_id)
