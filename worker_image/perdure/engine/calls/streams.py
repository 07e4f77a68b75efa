"""Streams of runs: `write_stream` appends a value, `close_stream` says that none comes any more, `read_stream` waits
for the one at an offset.

In a body each is recorded, so that a replay writes nothing twice and reads the same again. Inside a step writing and
closing are plain: part of the step, made again when it is tried again, and under the fence of the claim all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from perdure.engine.backoff import Wait
from perdure.engine.calls import plain
from perdure.engine.calls.calls import Calls, Ends
from perdure.engine.calls.kinds import Common, Place
from perdure.engine.codec import Decoder
from perdure.engine.context import Scope
from perdure.engine.encoding import PLAIN, Encoding
from perdure.engine.transaction import current_connection
from perdure.errors import InsideStep, InvalidArgument, NonExistentWorkflow, StreamClosed, StreamTimeout
from perdure.model.calls import CallName, child_key
from perdure.model.rows import MAX_WRITES, StepWrite, WaitingFor
from perdure.model.states import StepStatus
from perdure.model.streams import AwaitStream, CloseStream, StreamLook, StreamState, WriteStream, stream_key

if TYPE_CHECKING:
    from perdure.engine.execute import Execution

KIND = "Stream"

MOST_WRITES = MAX_WRITES + (1 << 15)
"""Where a step may write to no stream any more: between its durable calls the run goes on under another claim from
`MAX_WRITES` on, but a single step has no such place. It leaves room for what the run writes then."""


@dataclass(frozen=True)
class WriteToStream(Common):
    """Append a value, of which `text` is what is stored as far as it is written."""

    key: str
    value: Any = field(compare=False)
    text: str
    encoding: Encoding = field(default=PLAIN, compare=False)
    name = CallName.WRITE_STREAM
    in_steps = True
    holds = True

    @property
    def arguments(self) -> list[Any]:
        """Key and value."""
        return [self.key, self.value]

    async def perform(self, calls: Calls, at: Place) -> None:
        """Append it."""
        text = await calls.finish(self.text, self.encoding, f"the value for stream {self.key}")
        with calls.busy():
            step = calls.write(at, StepStatus.SUCCEEDED, output="null")
            answer = await calls.ask(WriteStream(step, self.key, text))
            if not answer.done:
                raise calls.fail(at, closed(self.key))

    def read_back(self, output: str) -> None:
        """Nothing."""

    def plainly(self, scope: Scope | None) -> Coroutine[Any, Any, None]:
        """As part of a step."""
        return _inside(scope, self.name, self._plainly)

    async def _plainly(self, scope: Scope) -> None:
        what = f"the value for stream {self.key}"
        text = await scope.execution.values.finish(self.text, self.encoding, what)
        call = WriteStream(_unrecorded(scope, self.name, text), self.key, text, plain=True)
        if not (await plain.answer(scope.execution, lambda: scope.execution.log.call(call))).done:
            raise closed(self.key)


@dataclass(frozen=True)
class CloseTheStream(Common):
    """Close a stream."""

    key: str
    name = CallName.CLOSE_STREAM
    in_steps = True

    @property
    def arguments(self) -> list[Any]:
        """The key."""
        return [self.key]

    async def perform(self, calls: Calls, at: Place) -> None:
        """Close it."""
        with calls.busy():
            await calls.ask(CloseStream(calls.write(at, StepStatus.SUCCEEDED, output="null"), self.key))

    def read_back(self, output: str) -> None:
        """Nothing."""

    def plainly(self, scope: Scope | None) -> Coroutine[Any, Any, None]:
        """As part of a step."""
        return _inside(scope, self.name, self._plainly)

    async def _plainly(self, scope: Scope) -> None:
        call = CloseStream(_unrecorded(scope, self.name, ""), self.key, plain=True)
        await plain.answer(scope.execution, lambda: scope.execution.log.call(call))


@dataclass(frozen=True)
class ReadFromStream(Common):
    """The value at an offset; `decoder` says of what type, if that is known."""

    run_id: str
    key: str
    offset: int
    timeout: float | None
    decoder: Decoder | None = field(default=None, compare=False)
    name = CallName.READ_STREAM
    in_steps = True
    foreign = True

    @property
    def arguments(self) -> list[Any]:
        """Run, key, offset and limit of time."""
        return [self.run_id, self.key, self.offset, self.timeout]

    async def perform(self, calls: Calls, at: Place) -> Any:
        """Look, have the run woken, look again: what is written in between is seen, what comes later wakes."""
        waits = at.recorded is not None and at.recorded.status is StepStatus.WAITING
        ends = calls.clock(at.left if waits else self.timeout)
        while True:
            with calls.busy():
                found = await self._look(calls)
                if found.value is None and found.state is StreamState.OPEN and not (ends is not None and ends.over):
                    step = calls.write(at, StepStatus.WAITING, wake_in=None if ends is None else ends.left)
                    await calls.ask(AwaitStream(step, self.run_id, self.key, self.offset))
                    if self.run_id != at.run_id:
                        # Its end is the end of its streams.
                        await calls.listening.to([self.run_id])
                    found = await self._look(calls)
                if found.value is not None:
                    calls.succeed(at, found.value)
                    return self.read_back(await calls.read(found.value, self._what))
                if found.state is not StreamState.OPEN or (ends is not None and ends.over):
                    raise calls.fail(at, no_value(self.run_id, self.key, self.offset, self.timeout, found.state))
            await calls.wait(
                Wait(
                    self._why,
                    None if ends is None else ends.left,
                    stream_key(self.run_id, self.key),
                    found.wake_seq,
                    calls.hold(at),
                    (stream_key(self.run_id, self.key), child_key(self.run_id)),
                )
            )

    def read_back(self, output: str) -> Any:
        """The value."""
        return from_json(output) if self.decoder is None else self.decoder.decode(output, self._what)

    @property
    def _what(self) -> str:
        return f"value {self.offset} of stream {self.key} of run {self.run_id}"

    def plainly(self, scope: Scope | None) -> Coroutine[Any, Any, Any]:
        """As part of a step, which keeps its slot: it looks every now and then."""
        assert scope is not None
        return plain.beside(scope.execution, self._plainly(scope.execution))

    async def _plainly(self, execution: Execution) -> Any:
        ends = None if self.timeout is None else Ends(self.timeout)
        pause = plain.PAUSE_FIRST
        while True:
            found = await plain.answer(
                execution, lambda: execution.log.look_at_stream(self.run_id, self.key, self.offset)
            )
            if found.value is not None:
                return self.read_back(await execution.values.read(found.value, self._what))
            if found.state is not StreamState.OPEN or (ends is not None and ends.over):
                raise no_value(self.run_id, self.key, self.offset, self.timeout, found.state)
            await asyncio.sleep(pause if ends is None else min(pause, ends.left))
            pause = min(plain.PAUSE_LONGEST, pause * 1.5)

    async def _look(self, calls: Calls) -> StreamLook:
        return await calls.look(calls.log.look_at_stream(self.run_id, self.key, self.offset))

    def _why(self, left: float) -> WaitingFor:
        return WaitingFor(
            KIND,
            f"{self.key} of {self.run_id}",
            f"it waits for value {self.offset} of stream {self.key} of {self.run_id}",
        )


def _inside(
    scope: Scope | None, name: str, work: Callable[[Scope], Coroutine[Any, Any, None]]
) -> Coroutine[Any, Any, None]:
    assert scope is not None
    if current_connection() is not None:
        raise InsideStep(
            f"{name} was called in transaction {scope.name}: readers would keep what it rolls back; "
            "write from the workflow"
        )
    return plain.beside(scope.execution, work(scope))


def _unrecorded(scope: Scope, name: str, text: str) -> StepWrite:
    """The place and the number of a call inside a step. `text` is what it holds in memory until it is written."""
    execution = scope.execution
    seq = execution.next_seq()
    if seq >= MOST_WRITES:
        raise InvalidArgument(
            "steps have written to streams too often under one claim: write from the body of the workflow"
        )
    assert scope.index is not None
    return StepWrite(scope.index, seq, name, StepStatus.RUNNING, text)


def closed(key: str) -> StreamClosed:
    """What a write to a closed stream raises."""
    return StreamClosed(f"stream {key} was closed by this run; nothing can be written to it any more")


def no_value(run_id: str, key: str, offset: int, timeout: float | None, state: StreamState) -> Exception:
    """What a read without a value raises."""
    match state:
        case StreamState.NO_RUN:
            return NonExistentWorkflow(f"there is no run {run_id} to read stream {key} of")
        case StreamState.CLOSED:
            return StreamTimeout(f"stream {key} of run {run_id} was closed before offset {offset}")
        case StreamState.RUN_ENDED:
            return StreamTimeout(f"run {run_id} has ended without a value at offset {offset} of stream {key}")
        case _:
            return StreamTimeout(f"stream {key} of run {run_id} had no value at offset {offset} within {timeout:g} s")
