"""Messages between runs: `send` puts one into a run's inbox, `recv` takes the oldest of a topic out of the own one.

A message is sent once for each key; the own key of a call is its place in the run, so that a crash sends no second one.
It is taken in the statement that records it, so that no crash loses or doubles it.
"""

from __future__ import annotations

from collections.abc import Coroutine
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
from perdure.errors import NonExistentWorkflow
from perdure.model.calls import CallName, Otherwise, PlainSend, Receive, Send, message_key
from perdure.model.rows import WaitingFor
from perdure.model.states import StepStatus

KIND = "Message"


def own_key(run_id: str, index: int) -> str:
    """Key of a message that its sender gave none: no key of a caller begins like it."""
    return f"call:{run_id}/{index}"


def callers_key(key: str) -> str:
    """Key of a message for which its sender chose one."""
    return f"key:{key}"


@dataclass(frozen=True)
class SendMessage(Common):
    """Send a value, of which `text` is what is stored as far as it is written, to a run."""

    to: str
    value: Any = field(compare=False)
    text: str
    topic: str
    key: str | None
    encoding: Encoding = field(default=PLAIN, compare=False)
    name = CallName.SEND
    in_steps = True
    holds = True

    @property
    def arguments(self) -> list[Any]:
        """Receiver, topic, key and value."""
        return [self.to, self.topic, self.key, self.value]

    async def perform(self, calls: Calls, at: Place) -> None:
        """Put it there."""
        key = own_key(at.stem, at.index) if self.key is None else callers_key(self.key)
        text = await calls.finish(self.text, self.encoding, "the message")
        with calls.busy():
            step = calls.write(at, StepStatus.SUCCEEDED, output="null")
            answer = await calls.ask(Send(step, self.to, self.topic, key, text))
            if not answer.done:
                raise calls.fail(at, NonExistentWorkflow(f"there is no run {self.to} to send a message to"))

    def read_back(self, output: str) -> None:
        """Nothing."""

    def plainly(self, scope: Scope | None) -> Coroutine[Any, Any, None]:
        """As part of a step."""
        assert scope is not None
        key = None if self.key is None else callers_key(self.key)
        return plain.send(scope, PlainSend(self.to, self.topic, key or "", self.text), self.encoding)


@dataclass(frozen=True)
class ReceiveMessage(Common):
    """Take the oldest message of a topic; None when there is none for `timeout` seconds. `decoder` says of what type it
    is, if that is known."""

    topic: str
    timeout: float | None
    decoder: Decoder | None = field(default=None, compare=False)
    name = CallName.RECV
    foreign = True

    @property
    def arguments(self) -> list[Any]:
        """Topic and limit of time."""
        return [self.topic, self.timeout]

    async def perform(self, calls: Calls, at: Place) -> Any:
        """Take one if there is one; else wait until the recorded end."""
        left = self.timeout if at.recorded is None else at.left
        ends = calls.clock(left)
        otherwise = Otherwise.WAITING if at.recorded is None else Otherwise.NOTHING
        while True:
            over = ends is not None and ends.over
            with calls.busy():
                step = calls.write(at, StepStatus.SUCCEEDED, wake_in=None if over else left)
                answer = await calls.ask(Receive(step, self.topic, Otherwise.NONE if over else otherwise))
            if answer.done:
                return self.read_back(await calls.read(answer.output or "null", self._what))
            otherwise = Otherwise.NOTHING
            await calls.wait(
                Wait(
                    self._why,
                    None if ends is None else ends.left,
                    message_key(self.topic),
                    answer.flags.wake_seq,
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
        return f"the message {f'on {self.topic}' if self.topic else ''}".rstrip()

    def _why(self, left: float) -> WaitingFor:
        what = f"on {self.topic}" if self.topic else ""
        return WaitingFor(KIND, what, f"it waits for a message {what}".rstrip())
