"""What the client waits for beside the ends of runs: events and streams, each with one question a tick for all.

Used by the client. Reading changes nothing in the database; a reader that goes away leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from perdure.client.database import Database
from perdure.client.ticker import FIRST_SECONDS, Ticker
from perdure.engine.calls.streams import no_value
from perdure.errors import NonExistentWorkflow
from perdure.model.streams import StreamState
from perdure.store import events, streams
from perdure.store.events import Published
from perdure.store.listen import StreamListener
from perdure.store.streams import Page, Reader

_APPLICATION = "perdure-client-streams"


class Waits:
    """`listen`: hear of what is written to streams; without, they are polled."""

    def __init__(self, database: Database, url: str, *, listen: bool) -> None:
        self._database = database
        self._events: Ticker[Published, str] = Ticker("events", self._ask_events)
        self._streams: Ticker[Reader, Page] = Ticker("streams", self._ask_streams)
        self._listener = StreamListener(url, self._heard, self._streams.hurry, application_name=_APPLICATION)
        self._listens = listen
        self._listening: asyncio.Task[None] | None = None

    async def event(self, run_id: str, name: str, limit: float | None) -> str | None:
        """The value of an event as JSON text, None when it is not set within so many seconds."""
        self._database.gate("a client waited for an event")
        wanted = Published(run_id, name)
        if limit == 0:
            return (await self._database.persist(events.read, [wanted]))[0]
        try:
            async with asyncio.timeout(limit):
                return await self._events.wait(wanted)
        except TimeoutError:
            return None

    async def stream(self, reader: Reader, limit: float | None) -> AsyncGenerator[str, None]:
        """The values from the reader's offset on as JSON texts, until the stream or its run ends.

        Raises `StreamTimeout` when one does not come within so many seconds, `NonExistentWorkflow`.
        """
        after = 0.0
        while True:
            page = await self._page(reader, limit, after)
            for text in page.values:
                yield text
            reader = replace(reader, offset=reader.offset + len(page.values))
            if page.state is StreamState.NO_RUN:
                raise NonExistentWorkflow(f"there is no run {reader.run_id} to read stream {reader.key} of")
            if page.state is not StreamState.OPEN:
                return
            after = 0.0 if len(page.values) == streams.PAGE_VALUES else FIRST_SECONDS

    @property
    def waiting(self) -> int:
        """How many waits go on."""
        return self._events.waiting + self._streams.waiting

    async def ask_now(self) -> None:
        """Ask for everybody at once. Raises what the database says."""
        await self._events.ask_now()
        await self._streams.ask_now()

    def fail(self, error: Exception) -> None:
        """Every wait ends with the error."""
        self._events.fail(error)
        self._streams.fail(error)

    async def close(self) -> None:
        """Every wait ends with `ClientClosed`."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        await self._events.close()
        await self._streams.close()

    async def _page(self, reader: Reader, limit: float | None, after: float) -> Page:
        self._database.gate("a client waited for a stream")
        if limit == 0:
            [page] = await self._database.persist(streams.pages, [reader])
            if not page.values and page.state is StreamState.OPEN:
                raise no_value(reader.run_id, reader.key, reader.offset, limit, page.state)
            return page
        if self._listens and self._listening is None:
            self._listening = asyncio.create_task(self._listener.run(), name="perdure client: streams heard")
        try:
            async with asyncio.timeout(limit):
                return await self._streams.wait(reader, after=after)
        except TimeoutError:
            raise no_value(reader.run_id, reader.key, reader.offset, limit, StreamState.OPEN) from None

    async def _ask_events(self, wanted: Sequence[Published]) -> list[str | None]:
        return await self._database.call(events.read, wanted)

    async def _ask_streams(self, readers: Sequence[Reader]) -> list[Page | None]:
        pages = await self._database.call(streams.pages, readers)
        return [page if page.values or page.state is not StreamState.OPEN else None for page in pages]

    def _heard(self, run_ids: list[str]) -> None:
        written = set(run_ids)
        self._streams.hurry(lambda reader: reader.run_id in written)
