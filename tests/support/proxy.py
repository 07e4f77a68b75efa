"""A TCP proxy in the test's own loop that stands between a worker and Postgres and breaks in chosen ways.

async with Proxy(port) as proxy:
    url = proxy.through(pg_url)
    proxy.hold_answers()    # what is sent arrives and is executed; what is answered does not come back
    ...                     # wait until the database shows it
    proxy.cut()             # every connection breaks; new ones work again
"""

import asyncio
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

CHUNK = 65536


class Proxy:
    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._server: asyncio.Server
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._answers = asyncio.Event()
        self._answers.set()
        self._questions = asyncio.Event()
        self._questions.set()
        self._accepting = True
        self._answered: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        if self._pumps:
            await asyncio.wait(self._pumps)
        await self._server.wait_closed()

    def through(self, url: str) -> str:
        """The same address by way of this proxy."""
        port = self._server.sockets[0].getsockname()[1]
        parts = urlsplit(url)
        user = f"{parts.username}@" if parts.username else ""
        return parts._replace(netloc=f"{user}127.0.0.1:{port}").geturl()

    def hold_answers(self) -> None:
        """From now on nothing comes back, on no connection."""
        self._answers.clear()

    @property
    def held_answers(self) -> int:
        """Connections on which the server has answered and the answer is held: what they asked was executed."""
        return len(self._answered)

    def hold_questions(self) -> None:
        """From now on nothing arrives at the server, on no connection."""
        self._questions.clear()

    def release(self) -> None:
        """Everything flows again."""
        self._answers.set()
        self._questions.set()
        self._answered.clear()

    def refuse(self) -> None:
        """New connections are closed at once."""
        self._accepting = False

    def accept(self) -> None:
        self._accepting = True

    def cut(self) -> None:
        """Break every connection, with what is held in them; new ones flow."""
        for pump in self._pumps:
            pump.cancel()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self.release()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._accepting:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        self._pump(reader, back, self._questions)
        self._pump(there, writer, self._answers)

    def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event) -> None:
        pump = asyncio.create_task(self._carry(reader, writer, flows))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event) -> None:
        try:
            while data := await reader.read(CHUNK):
                if flows is self._answers and not flows.is_set():
                    self._answered.add(writer)
                await flows.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            self._answered.discard(writer)
            writer.transport.abort()
