"""Events of runs: `set_event` publishes the latest value under a name, `get_event` waits for one of any run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from perdure.engine.backoff import Wait
from perdure.engine.calls import plain
from perdure.engine.calls.calls import Calls
from perdure.engine.calls.kinds import Common, Place
from perdure.engine.codec import Decoder
from perdure.engine.context import Scope
from perdure.engine.encoding import PLAIN, Encoding
from perdure.model.calls import AwaitEvent, CallName, EventValue, SetEvent, event_key
from perdure.model.rows import WaitingFor
from perdure.model.states import StepStatus

KIND = "Event"


@dataclass(frozen=True)
class SetRunEvent(Common):
    """Set an event to a value, of which `text` is what is stored as far as it is written."""

    event: str
    value: Any = field(compare=False)
    text: str
    encoding: Encoding = field(default=PLAIN, compare=False)
    name = CallName.SET_EVENT
    holds = True

    @property
    def arguments(self) -> list[Any]:
        """Name and value."""
        return [self.event, self.value]

    async def perform(self, calls: Calls, at: Place) -> None:
        """Set it."""
        text = await calls.finish(self.text, self.encoding, f"the value of event {self.event}")
        with calls.busy():
            step = calls.write(at, StepStatus.SUCCEEDED, output="null")
            await calls.ask(SetEvent(step, self.event, text))

    def read_back(self, output: str) -> None:
        """Nothing."""


@dataclass(frozen=True)
class GetRunEvent(Common):
    """The value of an event; None when it is not set for `timeout` seconds. `decoder` says of what type it is, if that
    is known."""

    run_id: str
    event: str
    timeout: float | None
    decoder: Decoder | None = field(default=None, compare=False)
    name = CallName.GET_EVENT
    in_steps = True
    foreign = True

    @property
    def arguments(self) -> list[Any]:
        """Run, name and limit of time."""
        return [self.run_id, self.event, self.timeout]

    async def perform(self, calls: Calls, at: Place) -> Any:
        """Look, have the run woken, look again: one that is set in between is seen, one set later wakes."""
        left = self.timeout if at.recorded is None else at.left
        ends = calls.clock(left)
        while True:
            with calls.busy():
                found = await self._look(calls)
                if found.value is None and not (ends is not None and ends.over):
                    step = calls.write(at, StepStatus.WAITING, wake_in=None if ends is None else ends.left)
                    await calls.ask(AwaitEvent(step, self.run_id, self.event))
                    found = await self._look(calls)
                if found.value is not None or (ends is not None and ends.over):
                    output = "null" if found.value is None else found.value
                    calls.succeed(at, output)
                    return self.read_back(await calls.read(output, self._what))
            await calls.wait(
                Wait(
                    self._why,
                    None if ends is None else ends.left,
                    event_key(self.run_id, self.event),
                    found.wake_seq,
                    calls.hold(at),
                )
            )

    def read_back(self, output: str) -> Any:
        """The value."""
        if self.decoder is None or output == "null":
            return from_json(output)
        return self.decoder.decode(output, self._what)

    @property
    def _what(self) -> str:
        return f"event {self.event} of run {self.run_id}"

    async def plainly(self, scope: Scope | None) -> Any:
        """As part of a step."""
        assert scope is not None
        found = await plain.get_event(scope, self.run_id, self.event, self.timeout)
        return self.read_back("null" if found is None else found)

    async def _look(self, calls: Calls) -> EventValue:
        return await calls.look(calls.log.look_at_event(self.run_id, self.event))

    def _why(self, left: float) -> WaitingFor:
        return WaitingFor(
            KIND, f"{self.event} of {self.run_id}", f"it waits for run {self.run_id} to set event {self.event}"
        )
