"""What a run of a schedule asks of it."""

from __future__ import annotations

from perdure.engine.context import current_scope
from perdure.errors import NotInWorkflow
from perdure.model.schedules import ScheduledTick, tick_of


def scheduled_tick() -> ScheduledTick | None:
    """The tick for which this run was started, by its schedule's rule and not by when it came to run; None for a run
    that no schedule has started. A fork stands for the tick of the run that it was forked from.

    It is part of the run's id, so a replay gets the same. In a body or a step; raises `NotInWorkflow` outside a run.
    """
    scope = current_scope.get()
    if scope is None:
        raise NotInWorkflow("perdure.scheduled_tick was called outside a run, which no schedule can have started")
    run = scope.execution.claimed
    return tick_of(run.seed or run.id)
