"""A line to the API server that can be cut, or go deaf without being cut, as behind a broken load balancer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes on. `cut` breaks the connections there are; `deafen` stops what the server sends on them."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        assert parts.hostname is not None
        assert parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        self._lines: list[Line] = []
        self.url = ""
        self.refuse = False

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut()
            await asyncio.gather(*(line.ended.wait() for line in self._lines))

    @property
    def lines(self) -> int:
        """Connections that were made so far."""
        return len(self._lines)

    def cut(self) -> None:
        for line in self._lines:
            line.cut()

    def deafen(self) -> None:
        for line in self._lines:
            line.deaf = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            writer.transport.abort()
            return
        to_server = await asyncio.open_connection(self._host, self._port)
        line = Line((reader, writer), to_server)
        self._lines.append(line)
        await line.run()


class Line:
    """One connection in both directions."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._client, self._server = client, server
        self.deaf = False
        self.ended = asyncio.Event()

    def cut(self) -> None:
        for _, writer in (self._client, self._server):
            writer.transport.abort()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(self._client[0], self._server[1], from_server=False))
                group.create_task(self._pass_on(self._server[0], self._client[1], from_server=True))
        except* OSError:
            pass
        finally:
            self.cut()
            self.ended.set()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_server: bool) -> None:
        while data := await reader.read(65536):
            if from_server and self.deaf:
                continue
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()
