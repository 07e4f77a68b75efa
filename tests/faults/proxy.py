"""One worker's way to Postgres, on which statements get lost, late and half.

Every statement of every session passes `_Session.question`; the next fault whose statement fits is carried out on it.
What is held back here is sent on when its time comes, although its client, and perhaps its worker, is long gone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from tests.faults.wire import (
    CANCEL_REQUEST,
    GSS_REQUEST,
    SSL_REQUEST,
    Frames,
    Questions,
    Unit,
    hide_name,
    is_answered,
)

CHUNK = 65536
ANSWER_SECONDS = 10.0
"""How long a fault waits for the answer that it is about: longer than any statement may take."""


@dataclass(eq=False)
class Armed:
    """A fault that waits for its statement. `statement` empty: the next one, whatever it is. `skip`: so many that fit
    are let through first. `then` does something to the worker at that moment."""

    kind: str
    statement: str = ""
    skip: int = 0
    seconds: float = 0.0
    then: Callable[[], None] | None = None
    hit: asyncio.Event = field(default_factory=asyncio.Event)
    deliver: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to send on now what is held back for `seconds`."""


class FaultProxy:
    """Use as an asynchronous context manager. `hide`: sessions do not carry the worker's id as it is."""

    def __init__(self, port: int, *, hide: bool = False) -> None:
        self._target = ("127.0.0.1", port)
        self._hide = hide
        self._server: asyncio.Server
        self._sessions: set[_Session] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._armed: list[Armed] = []
        self._flows = asyncio.Event()
        self._flows.set()
        self._accepting = True
        self.late: set[asyncio.Task[None]] = set()
        """Statements that are still to be delivered."""
        self.statements: Counter[str] = Counter()
        """What was executed through here."""
        self.struck: Counter[str] = Counter()
        """Statements that a fault hit."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in (*self._tasks, *self.late):
            task.cancel()
        for session in list(self._sessions):
            session.abort()
        if self._tasks or self.late:
            await asyncio.wait([*self._tasks, *self.late])
        await self._server.wait_closed()

    def through(self, url: str) -> str:
        """The same address by way of this proxy."""
        parts = urlsplit(url)
        user = f"{parts.username}@" if parts.username else ""
        return parts._replace(netloc=f"{user}127.0.0.1:{self._server.sockets[0].getsockname()[1]}").geturl()

    # -- faults

    def arm(self, fault: Armed) -> None:
        """Carry this fault out on the next statement that fits."""
        self._armed.append(fault)

    def disarm(self, fault: Armed) -> None:
        """It has waited long enough."""
        if fault in self._armed:
            self._armed.remove(fault)

    def silence(self) -> None:
        """Nothing arrives any more, in neither direction, and nobody is told."""
        self._flows.clear()

    def refuse(self) -> None:
        """New connections are closed at once."""
        self._accepting = False

    def heal(self) -> None:
        """Whatever is not lost flows again."""
        self._accepting = True
        self._flows.set()

    def disarm_all(self) -> None:
        self._armed.clear()

    # -- sessions

    def pick(self, unit: Unit) -> Armed | None:
        """The fault for this statement."""
        self.statements[unit.statement] += 1
        for fault in self._armed:
            if fault.statement in ("", unit.statement):
                if fault.skip:
                    fault.skip -= 1
                    continue
                self._armed.remove(fault)
                self.struck[unit.statement] += 1
                fault.hit.set()
                return fault
        return None

    def forget(self, session: _Session) -> None:
        self._sessions.discard(session)

    async def flowing(self) -> None:
        await self._flows.wait()

    def deliver_late(self, session: _Session, unit: Unit, fault: Armed) -> None:
        """Send this on by and by, whoever is still there then."""
        task = asyncio.create_task(session.late(unit, fault))
        self.late.add(task)
        task.add_done_callback(self.late.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._accepting:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await self.flowing()
            first = await reader.readexactly(4)
            first += await reader.readexactly(int.from_bytes(first, "big") - 4)
            code = int.from_bytes(first[4:8], "big")
            if code not in (SSL_REQUEST, GSS_REQUEST):
                break
            writer.write(b"N")
        there, back = await asyncio.open_connection(*self._target)
        back.write(hide_name(first) if self._hide and code != CANCEL_REQUEST else first)
        session = _Session(self, reader, writer, there, back)
        self._sessions.add(session)
        await session.run()


class _Session:
    """One connection: client on the near side, Postgres on the far side."""

    def __init__(
        self,
        proxy: FaultProxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._near_in, self._near_out = reader, writer
        self._far_in, self._far_out = there, back
        self._holding = False
        self._dropping = False
        self._held: list[bytes] = []
        self._answered = asyncio.Event()
        self._late = False

    async def run(self) -> None:
        answers = asyncio.create_task(self._answers())
        try:
            await self._questions()
        except (OSError, ValueError):
            pass
        finally:
            self._near_out.transport.abort()
            if not self._late:
                self._far_out.transport.abort()
                answers.cancel()
                self._proxy.forget(self)

    def abort(self) -> None:
        self._near_out.transport.abort()
        self._far_out.transport.abort()
        self._proxy.forget(self)

    async def _questions(self) -> None:
        questions = Questions()
        while data := await self._near_in.read(CHUNK):
            for unit in questions.feed(data):
                await self._proxy.flowing()
                fault = self._proxy.pick(unit) if unit.statement else None
                if fault is None:
                    self._far_out.write(unit.data)
                elif not await FAULTS[fault.kind](self, unit, fault):
                    return
            await self._far_out.drain()

    async def _answers(self) -> None:
        frames = Frames()
        try:
            while data := await self._far_in.read(CHUNK):
                for frame in frames.feed(data):
                    await self._proxy.flowing()
                    if is_answered(frame):
                        self._answered.set()
                    if self._holding:
                        self._held.append(frame)
                    elif not (self._dropping or self._near_out.is_closing()):
                        self._near_out.write(frame)
                if not self._near_out.is_closing():
                    await self._near_out.drain()
        except OSError:
            pass
        finally:
            self._answered.set()
            if not (self._dropping or self._holding):
                self._near_out.transport.abort()

    async def _ask(self, unit: Unit) -> None:
        """Send it on and wait until the server has answered, keeping the answer here."""
        self._holding = True
        self._answered.clear()
        self._far_out.write(unit.data)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._answered.wait()
        except TimeoutError:
            pass

    def _pass_on(self) -> None:
        self._near_out.write(b"".join(self._held))
        self._held.clear()
        self._holding = False

    async def late(self, unit: Unit, fault: Armed) -> None:
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(fault.seconds):
                    await fault.deliver.wait()
            await self._ask(unit)
        except OSError:
            pass
        finally:
            self.abort()

    async def _until_client_leaves(self) -> None:
        while await self._near_in.read(CHUNK):
            pass

    # -- one method for each fault; whether the session goes on

    async def cut_before(self, _unit: Unit, _fault: Armed) -> bool:
        return False

    async def cut_after(self, unit: Unit, _fault: Armed) -> bool:
        await self._ask(unit)
        return False

    async def delay_question(self, unit: Unit, fault: Armed) -> bool:
        await asyncio.sleep(fault.seconds)
        self._far_out.write(unit.data)
        return True

    async def delay_answer(self, unit: Unit, fault: Armed) -> bool:
        await self._ask(unit)
        await asyncio.sleep(fault.seconds)
        self._pass_on()
        return True

    async def half_close_far(self, unit: Unit, _fault: Armed) -> bool:
        """The server believes that the client has left; the client hears nothing."""
        self._dropping = True
        self._far_out.write(unit.data)
        self._far_out.write_eof()
        await self._until_client_leaves()
        return False

    async def half_close_near(self, unit: Unit, _fault: Armed) -> bool:
        """The client sees the end of the stream; the server works on and keeps its session."""
        self._dropping = True
        self._near_out.write_eof()
        self._far_out.write(unit.data)
        await self._until_client_leaves()
        return False

    async def blackhole(self, unit: Unit, _fault: Armed) -> bool:
        """Everything arrives, nothing comes back, for as long as the client has patience."""
        self._dropping = True
        self._far_out.write(unit.data)
        await self._until_client_leaves()
        return False

    async def commit_late(self, unit: Unit, fault: Armed) -> bool:
        """The client is cut off; what it sent is executed later."""
        self._holding = True
        self._late = True
        self._proxy.deliver_late(self, unit, fault)
        return False

    async def kill_late(self, unit: Unit, fault: Armed) -> bool:
        """The same, of a worker that does not outlive it."""
        assert fault.then is not None
        fault.then()
        return await self.commit_late(unit, fault)

    async def pause_after(self, unit: Unit, fault: Armed) -> bool:
        """The worker is stopped with the answer in its hands, before it has read it."""
        await self._ask(unit)
        assert fault.then is not None
        fault.then()
        self._pass_on()
        return True


FAULTS = {
    kind.__name__: kind
    for kind in (
        _Session.cut_before,
        _Session.cut_after,
        _Session.delay_question,
        _Session.delay_answer,
        _Session.half_close_far,
        _Session.half_close_near,
        _Session.blackhole,
        _Session.commit_late,
        _Session.kill_late,
        _Session.pause_after,
    )
}
"""The faults of a statement, by name."""
