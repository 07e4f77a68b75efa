"""Wakes between runs: tells other runs of what runs here brought about, and runs here that wait in memory of theirs.

Used by the journal and the runner. Telling is the statement after the one that made the thing durable, on a connection
of its own, many at once; whatever is lost here is found by the sweeps. Runs that wait in memory cost one query a tick,
however many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar, assert_never

from perdure.model.calls import AwaitEvent, AwaitRuns, OwnCall, PlainSend, Receive, Send, SetEvent, Start
from perdure.model.rows import ClaimedRun
from perdure.model.streams import AwaitStream, CloseStream, WriteStream
from perdure.store import wakes as store
from perdure.store.listen import notify_streams
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics
from perdure.worker.link import Connection, Link, error_class
from perdure.worker.service import Service, backoff

log = get_logger(__name__)

TICK_SECONDS = 0.1
"""Seconds between looks for runs that wait in memory: mostly they wait for a second or so, and wakes that this process
makes are heard of without a look."""

LONGEST_TICK = 1.0
"""Seconds between looks for those that have waited for long, beside a step that takes hours."""

STREAM_SECONDS = 0.02
"""Least time between two tellings of streams: what a reader takes for at once, and few statements a second for a stream
that never rests."""

BATCH = 200
"""Runs told in one statement: it holds their row locks for a few milliseconds."""

P = ParamSpec("P")
T = TypeVar("T")


class Wakes(Service):
    """See the module. `ready` is told of each pool in which something became claimable; `pool` is this worker's."""

    name = "wakes"

    def __init__(self, link: Link, pool: str, metrics: Metrics, ready: Callable[[str, str], None]) -> None:
        super().__init__()
        self._link = link
        self.pool = pool
        self._metrics = metrics
        self._ready = ready
        self._messages: list[store.Message] = []
        self._children: list[store.Child] = []
        self._ended: list[str] = []
        self._events: list[store.Event] = []
        self._streams: dict[store.Stream, None] = {}
        self._streams_at = 0.0
        self._waiting: dict[str, dict[asyncio.Future[None], int]] = {}
        self._news = asyncio.Event()
        self._tick = TICK_SECONDS

    # -- what runs here brought about

    def effect(self, run: ClaimedRun, call: OwnCall) -> None:
        """A call of a run was carried out. Returns at once."""
        match call:
            case Send():
                self._messages.append(store.Message(call.to, call.topic, call.key))
            case SetEvent():
                self._events.append(store.Event(run.id, call.event, run.fence, call.step.seq))
            case Start():
                self._ready(run.namespace, call.options.pool or self.pool)
                return
            case WriteStream() | CloseStream():
                self._streams[store.Stream(run.id, call.key)] = None
            case Receive() | AwaitEvent() | AwaitRuns() | AwaitStream():
                return
            case _:
                assert_never(call)
        self._news.set()

    def sent(self, message: PlainSend) -> None:
        """The body of a step has sent a message. Returns at once."""
        self._messages.append(store.Message(message.to, message.topic, message.key))
        self._news.set()

    def ended(self, run_id: str, parent: str) -> None:
        """A run that another one started has ended. Returns at once."""
        self._children.append(store.Child(run_id, parent))
        self._news.set()

    def waited(self, run_id: str) -> None:
        """A run has ended, and a run that did not start it waits for that. Returns at once."""
        self._ended.append(run_id)
        self._news.set()

    def ready(self, namespace: str, pool: str) -> None:
        """A run of this pool became claimable. Returns at once."""
        self._ready(namespace, pool)

    # -- what others brought about

    async def woken(self, run_id: str, seen: int) -> None:
        """Return when the run's count of wakes is another one than `seen`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(run_id, {})
        waiting[future] = seen
        self._tick = TICK_SECONDS
        self._news.set()
        try:
            await future
        finally:
            del waiting[future]
            if not waiting and self._waiting.get(run_id) is waiting:
                del self._waiting[run_id]

    async def ask(
        self, operation: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """A question on this service's connection."""
        return await self._link.call(operation, *args, **kwargs)

    # -- the loop

    async def run(self) -> None:
        """Tell and look for ever."""
        failures = 0
        while True:
            await self._next()
            try:
                await self._tell()
                if self._waiting:
                    self._heard(await self._link.call(store.wake_seqs, list(self._waiting)))
                failures = 0
            except Exception as error:
                failures += 1
                self._metrics.count(names.STORE_ERRORS, "wakes", error_class(error))
                if failures & (failures - 1) == 0:
                    log.warning("runs could not be woken; the sweeps will do it", error=error, failures=failures)
                await asyncio.sleep(backoff(failures))

    async def _next(self) -> None:
        """Until there is news, or the next look is due."""
        if self._waiting:
            try:
                async with asyncio.timeout(self._tick):
                    await self._news.wait()
            except TimeoutError:
                self._tick = min(LONGEST_TICK, self._tick * 1.5)
        else:
            await self._news.wait()
        self._news.clear()

    async def _tell(self) -> None:
        while self._messages or self._children:
            messages, self._messages = self._messages[:BATCH], self._messages[BATCH:]
            children, self._children = self._children[:BATCH], self._children[BATCH:]
            self._told(await self._link.call(store.announce, messages, children))
        while self._ended:
            ended, self._ended = self._ended[:BATCH], self._ended[BATCH:]
            self._told(await self._link.call(store.announce_ends, ended))
        while self._events:
            self._told(await self._link.call(store.announce_event, self._events.pop(0)))
        if self._streams:
            await self._tell_of_streams()

    async def _tell_of_streams(self) -> None:
        """Of what was written by then, in one go: a stream may be written to hundreds of times a second."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._streams_at:
            loop.call_at(self._streams_at, self._news.set)
            return
        self._streams_at = loop.time() + STREAM_SECONDS
        streams, self._streams = list(self._streams), {}
        for first in range(0, len(streams), BATCH):
            page = streams[first : first + BATCH]
            self._told(await self._link.call(store.announce_streams, page))
            await self._link.call(notify_streams, dict.fromkeys(each.run_id for each in page))

    def _told(self, woken: Sequence[store.Woken]) -> None:
        for namespace, pool in {(each.namespace, each.pool) for each in woken if each.ready}:
            self._ready(namespace, pool)
        self._heard({each.id: each.wake_seq for each in woken})

    def _heard(self, counts: dict[str, int]) -> None:
        for run_id, count in counts.items():
            for future, seen in self._waiting.get(run_id, {}).items():
                if count != seen and not future.done():
                    future.set_result(None)
