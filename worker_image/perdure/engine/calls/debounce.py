"""`perdure.debounce` in a body: the start of a run that further starts with the same key postpone.

The run that is postponed is somebody else's, so that is done first, in a transaction of its own (rule R15), once for
each place of a run, and again after a rewind; then the step that stands for it is recorded, with the id of the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from perdure.engine.calls.calls import Calls
from perdure.engine.calls.kinds import Common, Place
from perdure.engine.stored import ChildInput
from perdure.errors import ControlSignal, DecodingFailed
from perdure.model.calls import CallName
from perdure.store.clients import RunStart
from perdure.store.debounce import Debounce

H = TypeVar("H")


@dataclass(frozen=True)
class DebouncedStart(Common, Generic[H]):
    """Postpone the run of a key, or start one. `run` is what to start, without id and `input`; `given` are its
    arguments by position, `said` the options that were said; the result is the handle that `handle` makes of the run's
    id."""

    run: RunStart
    input: ChildInput
    given: Any
    said: dict[str, Any]
    key: str
    delay: float
    cap: float | None
    handle: Callable[[str], H]
    name = CallName.DEBOUNCE
    starts = True
    holds = True

    @property
    def arguments(self) -> list[Any]:
        """Workflow, arguments, key, times, and what was said of how."""
        return [self.run.workflow, self.given, self.key, self.delay, self.cap, self.said]

    async def perform(self, calls: Calls, at: Place) -> H:
        """Do it, and record which run it is."""
        place = f"{at.stem}/{at.index}"
        text = await self.input.finished(calls.run.values)
        run = replace(self.run, id=f"{at.stem}-{at.index}", input=text)
        asked = Debounce(run, self.key, place, self.delay, self.cap)
        with calls.busy():
            await self._after_all_else(calls)
            run_id = await calls.look(calls.log.debounce(asked))
            calls.succeed(at, json.dumps(run_id))
        return self.handle(run_id)

    def read_back(self, output: str) -> H:
        """The handle."""
        found = json.loads(output)
        if not isinstance(found, str):
            raise DecodingFailed(f"the recorded start of {self.run.workflow} names no run")
        return self.handle(found)

    async def _after_all_else(self, calls: Calls) -> None:
        """What the run has recorded is durable before others see what follows from it, and it still is this claim's."""
        try:
            await calls.log.flush()
        except ControlSignal as signal:
            calls.run.interrupt(signal)
            raise calls.run.signal() from None
        except Exception as error:
            calls.run.give_up(error, f"{self.name} could not be done")
            raise calls.run.signal() from error
