"""The informer: Kopf watches Workflows, WorkerPools, WorkflowSignals, and the Deployments and pods of pools, and only
passes events on.

Kopf runs in a thread with an event loop of its own. At its end it cancels every task of its loop, its handlers'
exceptions are dropped, and it reads lists of megabytes as one piece of JSON: none of that may touch the loop that
works. When it ends for whatever reason, it is started again here; what was missed is found by the resync. No
finalizers, no annotations, no peering: docs/decisions/0004-kopf-as-informer.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf
from perdure.resources.common import GROUP, VERSION
from perdure.resources.kinds import WORKER_POOL, WORKFLOW, WORKFLOW_SIGNAL
from perdure.telemetry.logs import get_logger

from perdure_operator.kube.access import Access
from perdure_operator.plan.manifests import POOL_LABEL

log = get_logger(__name__)

SERVER_SECONDS = 300
"""The server ends a watch after this time, and the client resumes it: streams that died unnoticed end as well."""

CLIENT_SECONDS = SERVER_SECONDS + 30
"""The client's own limit, for a server that does not."""

CREDENTIAL_SECONDS = 600
"""Age at which the token is read again. Always set: Kopf ends when a credential without one fails a second time."""

PAGE = 500
RETRY_DELAYS = (0.5, 1, 1, 2, 2, 3)
"""Seconds between tries of a request while the API server is away; then Kopf starts the list anew."""

RESTART_SECONDS = (1.0, 15.0)
"""First and longest wait before the watch is started again."""

BURST = 100
"""Events taken in one go: a few milliseconds, then the loop has its turn."""

CLOSE_SECONDS = 0.25
"""What TLS connections need to be closed after Kopf has let go of them, before the loop under them ends."""

END_SECONDS = 10.0
"""How long a stop waits for Kopf's thread before leaving it to end with the process."""


@dataclass(frozen=True, slots=True)
class Event:
    """One object as the watch saw it. `deleted` is what the server said, to be checked before anything is undone."""

    kind: str
    obj: dict[str, Any]
    deleted: bool


WORKFLOWS, POOLS, SIGNALS = WORKFLOW.kind, WORKER_POOL.kind, WORKFLOW_SIGNAL.kind
DEPLOYMENTS, PODS = "Deployment", "Pod"


class Watch:
    """Hands every event to `sink`, on the loop that `run` is awaited on. Events may repeat and may be missing."""

    def __init__(self, access: Access, namespaces: Sequence[str], sink: Callable[[Event], None]) -> None:
        self._access = access
        self._namespaces = tuple(namespaces)
        self._sink = sink
        self._stop = threading.Event()
        self._passed_on: deque[Event] = deque()
        self._taking = False
        self.restarts = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        delay = RESTART_SECONDS[0]
        while True:
            started = time.monotonic()
            reason = await self._once()
            if time.monotonic() - started > SERVER_SECONDS:
                delay = RESTART_SECONDS[0]
            self.restarts += 1
            log.warning("the watch has ended and is started again", seconds=delay, reason=reason)
            await asyncio.sleep(delay)
            delay = min(RESTART_SECONDS[1], delay * 2)

    def restart(self) -> None:
        """End the present watch, so that `run` starts a new one: for a watch that is found to be deaf."""
        self._stop.set()

    async def _once(self) -> str:
        loop = asyncio.get_running_loop()
        stop = self._stop = threading.Event()
        ended: asyncio.Future[str] = loop.create_future()

        def end(reason: str) -> None:
            if not ended.done():
                ended.set_result(reason)

        def body() -> None:
            reason = "stopped"
            try:
                asyncio.run(self._kopf(loop, stop))
            except BaseException as error:
                reason = f"{type(error).__name__}: {error}"
            _call(loop, end, reason)

        threading.Thread(target=body, name="watch", daemon=True).start()
        try:
            return await asyncio.shield(ended)
        finally:
            stop.set()
            await asyncio.wait([ended], timeout=END_SECONDS)

    async def _kopf(self, loop: asyncio.AbstractEventLoop, stop: threading.Event) -> None:
        try:
            await kopf.operator(
                registry=_registry(self._access, lambda event: self._pass_on(loop, event)),
                settings=_settings(),
                standalone=True,
                namespaces=self._namespaces,
                stop_flag=stop,
            )
        finally:
            stop.set()  # a thread of Kopf waits for it, and the loop for that thread
            await asyncio.sleep(CLOSE_SECONDS)

    def _pass_on(self, loop: asyncio.AbstractEventLoop, event: Event) -> None:
        """Called in Kopf's thread. Wakes the working loop once for all events that it has not come to yet: a wake
        for each costs both threads more than the event itself."""
        self._passed_on.append(event)
        if not self._taking:
            self._taking = True
            _call(loop, self._take)

    def _take(self) -> None:
        """Called on the working loop. The flag falls first: what is appended from now on wakes it again."""
        self._taking = False
        for _ in range(BURST):
            if not self._passed_on:
                return
            self._sink(self._passed_on.popleft())
        self._taking = True
        asyncio.get_running_loop().call_soon(self._take)


def quieten() -> None:
    """Keep Kopf out of the log: it has a line for every event, one for each try while the API server is away, and one
    with all its settings. That the watch has ended, and why, is said here; an outage by the HTTP layer, once."""
    logging.getLogger("kopf").setLevel(logging.CRITICAL)


def _registry(access: Access, pass_on: Callable[[Event], None]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    watched = {
        WORKFLOWS: (GROUP, VERSION, WORKFLOW.plural),
        POOLS: (GROUP, VERSION, WORKER_POOL.plural),
        SIGNALS: (GROUP, VERSION, WORKFLOW_SIGNAL.plural),
        DEPLOYMENTS: ("apps", "v1", "deployments"),
        PODS: ("", "v1", "pods"),
    }
    for kind, resource in watched.items():
        kopf.on.event(*resource, registry=registry, id=kind.lower())(_handler(kind, pass_on))

    @kopf.on.login(registry=registry, id="token")
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return connection(access)

    return registry


def connection(access: Access) -> kopf.ConnectionInfo:
    """How Kopf reaches the API server, with the present token."""
    return _Connection(
        server=access.server,
        ca_path=str(access.ca_file),
        scheme="Bearer",
        token=access.token(),
        expiration=datetime.now(UTC) + timedelta(seconds=CREDENTIAL_SECONDS),
    )


class _Connection(kopf.ConnectionInfo):
    """Trusts what `Access.tls` trusts, for the reason given there."""

    def as_ssl_context(self) -> ssl.SSLContext:
        context = super().as_ssl_context()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


def _handler(kind: str, pass_on: Callable[[Event], None]) -> Callable[..., Any]:
    async def handle(event: Any, **_: Any) -> None:
        pass_on(Event(kind, event["object"], event["type"] == "DELETED"))

    return handle


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.watching.server_timeout = SERVER_SECONDS
    settings.watching.client_timeout = CLIENT_SECONDS
    settings.watching.connect_timeout = 5
    settings.watching.chunk_size = PAGE
    settings.watching.label_selectors["apps", "v1", "deployments"] = POOL_LABEL
    settings.watching.label_selectors["", "v1", "pods"] = POOL_LABEL
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = RETRY_DELAYS
    settings.queueing.idle_timeout = 1.0
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None
    settings.persistence.diffbase_storage = NoDiffBase()
    return settings


class NoDiffBase(kopf.DiffBaseStorage):
    """Nothing is compared with an earlier state here, so nothing is copied either: most of the cost of an event."""

    def build(self, **_: Any) -> Any:
        """No essence."""
        return {}

    def fetch(self, **_: Any) -> Any:
        """No earlier one."""
        return None

    def store(self, **_: Any) -> None:
        """Never called: there are no handlers that keep state."""


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended: so does this process, or this test
        loop.call_soon_threadsafe(function, *arguments)
