"""Time, ids and random numbers that a body may use: a replay gives the same ones. Exported again by `perdure`."""

from __future__ import annotations

from datetime import datetime
from random import Random
from uuid import UUID
from uuid import uuid4 as any_uuid

from perdure.engine.calls.clock import Now
from perdure.engine.calls.kinds import build
from perdure.engine.context import current_scope
from perdure.engine.pending import PendingCall


def now() -> PendingCall[datetime]:
    """The time by the database's clock, in UTC, as it was when this was first awaited.

    A durable call: it takes its place in the run, and what it gave is recorded with what the run writes next. In a
    step, and outside a run, it is the time of this machine.
    """
    return build(Now())


def uuid4() -> UUID:
    """A random id. In the body of a run the same one at each replay, by the run's id and how many of these the body has
    asked for; nothing is recorded. In a step, and outside a run, a new one each time.

    Ask for them in an order that is always the same, as with steps.
    """
    scope = current_scope.get()
    if scope is None or scope.index is not None:
        return any_uuid()
    return UUID(bytes=scope.execution.determinism.draw("uuid")[:16], version=4)


def random() -> Random:
    """A generator of random numbers. In the body of a run it gives the same ones at each replay, and others than the
    generators before it; nothing is recorded. In a step, and outside a run, it is seeded anew.

    Not for secrets. What `shuffle` and `sample` make of a seed may change with the version of Python.
    """
    scope = current_scope.get()
    if scope is None or scope.index is not None:
        return Random()  # noqa: S311 - nobody's secret
    return Random(scope.execution.determinism.draw("random"))  # noqa: S311 - it must be the same at a replay
