"""Durable calls for the body of a workflow, beside its steps.

Each takes its place in the run when it is called, not when it is awaited, and its outcome is recorded there, so that
it may stand in `asyncio.gather` and a replay goes the same way. One that waits gives its slot back.
"""

from __future__ import annotations

from perdure.engine.calls.arguments import length_of_sleep
from perdure.engine.calls.calls import build
from perdure.engine.calls.sleep import Sleep
from perdure.engine.pending import PendingCall
from perdure.model.start import Seconds


def sleep(seconds: Seconds) -> PendingCall[None]:
    """Sleep for a number of seconds, or a timedelta, by the database's clock; zero and less is no time at all.

    The end is fixed when the call is first awaited and recorded: whatever happens to the worker, the run goes on then.
    Longer than about a second it takes no slot. In a step it is `asyncio.sleep`. Raises `NotInWorkflow` outside a run,
    `InvalidArgument` for what is no length of time.
    """
    return build(Sleep(length_of_sleep(seconds)))
