"""`perdure.sleep`: its end is fixed by the database's clock at its first record; a replay waits for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from perdure.engine.backoff import Wait
from perdure.engine.calls.calls import Calls
from perdure.engine.calls.kinds import Common, Place
from perdure.engine.context import Scope
from perdure.model.calls import CallName
from perdure.model.rows import WaitingFor
from perdure.model.states import StepStatus

KIND = "Sleep"


@dataclass(frozen=True)
class Sleep(Common):
    """Sleep for so many seconds."""

    seconds: float
    name = CallName.SLEEP
    in_steps = True
    outside = True

    @property
    def arguments(self) -> list[Any]:
        """The length."""
        return [self.seconds]

    async def perform(self, calls: Calls, at: Place) -> None:
        """Record the end, wait for it, record that it has passed."""
        left = self.seconds if at.recorded is None else at.left or 0.0
        if left > 0:
            if at.recorded is None:
                # It travels with the park, which is the next thing to be written if nothing else is in progress.
                calls.record(calls.write(at, StepStatus.WAITING, wake_in=left))
            await calls.wait(Wait(self._why, left))
        calls.succeed(at, "null")

    def read_back(self, output: str) -> None:
        """Nothing."""

    def plainly(self, scope: Scope | None) -> Coroutine[Any, Any, None]:
        """Where nothing is recorded."""
        return asyncio.sleep(self.seconds)

    def _why(self, left: float) -> WaitingFor:
        return WaitingFor(KIND, message=f"it sleeps for {self.seconds:g} s; the end is in {left:.0f} s")
