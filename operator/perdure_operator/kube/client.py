"""The one HTTP layer between the operator and the API server. Every request goes through `Client.request`.

Bounded concurrency, a time limit on each request, Retry-After honoured, the token read anew, no proxy variables,
one counter by verb and status. Reads, and writes that may be repeated, are tried again a few times; then the caller
hears `ApiUnavailable` and comes back with its next round. No typed models: a body that a newer server sends must
never turn a write that happened into an error.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
from perdure.telemetry import names
from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import Metrics

from perdure_operator.kube.access import Access
from perdure_operator.kube.errors import ApiRefused, ApiUnavailable
from perdure_operator.outage import Outage

log = get_logger(__name__)

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
"""Content types of a PATCH. There is no default: the wrong one is accepted and does something else."""

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""What to accept when only the outcome of a write matters."""

CONCURRENCY = 16
"""Requests at once: keeps two API server cores busy and leaves its priority levels room for others."""

REQUEST_SECONDS = 15.0
"""Longest wait for an answer: above the API server's own patience with etcd (about ten seconds)."""

CONNECT_SECONDS = 5.0
"""Longest wait for a connection inside a cluster."""

TOKEN_SECONDS = 60.0
"""Age at which the token file is read again; the kubelet replaces it minutes before it expires."""

ATTEMPTS = 3
"""Tries of one request: enough for a rolled API server behind a load balancer."""

LONGEST_RETRY_AFTER = 10.0
"""A longer wait is the caller's business: it has other work meanwhile."""

PAGE = 500
"""Objects in a page of a list: 1.3 MB and 0.1 s for Workflows."""

BUSY = frozenset({429, 500, 502, 503, 504})


class Client:
    """Requests to one API server. Open with `async with`; use from one event loop."""

    def __init__(self, access: Access, metrics: Metrics, *, user_agent: str) -> None:
        self._access = access
        self._metrics = metrics
        self._agent = user_agent
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._opening = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._outage = Outage("the API server")
        self._token = ""
        self._token_read_at = float("-inf")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. A later request opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        query: Mapping[str, str] | None = None,
        attempts: int = ATTEMPTS,
    ) -> Any:
        """The decoded JSON answer. Raises ApiRefused for a 4xx, ApiUnavailable for anything without a clear answer.

        With more than one attempt the request must bear being repeated.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": accept, **({} if body is None else {"Content-Type": content_type})}
        renewed = False
        for attempt in range(1, attempts + 1):
            try:
                return await self._once(method, path, data, headers, query)
            except ApiRefused as error:
                if error.status != 401 or renewed:
                    raise
                renewed, self._token_read_at = True, float("-inf")
            except ApiUnavailable as error:
                wait = error.retry_after if error.retry_after is not None else 0.2 * 2**attempt * random.uniform(0.5, 1)  # noqa: S311 # spreads load, keeps no secret
                if attempt == attempts or wait > LONGEST_RETRY_AFTER:
                    raise
                await asyncio.sleep(wait)
        raise ApiUnavailable(f"{method} {path}: not authorised with a token that was just read", status=401)

    async def list(self, path: str, *, selector: str | None = None) -> AsyncIterator[list[Any]]:
        """Pages of a list that is complete and of one moment, or an exception; never a part that looks like all.

        A list that takes longer than the server keeps its moment (410) is refused as unavailable.
        """
        query = {"limit": str(PAGE)} | ({"labelSelector": selector} if selector else {})
        while True:
            try:
                page = await self.request("GET", path, query=query)
            except ApiRefused as error:
                if error.status == 410:
                    raise ApiUnavailable(f"GET {path}: the list took too long", status=410) from error
                raise
            yield page.get("items") or []
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return
            query["continue"] = following

    async def _once(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], query: Mapping[str, str] | None
    ) -> Any:
        async with self._slots:
            started = time.monotonic()
            status = 0
            try:
                session = await self._open_session()
                headers = {**headers, "Authorization": f"Bearer {await self._current_token()}"}
                async with session.request(
                    method, self._access.server + path, data=data, headers=headers, params=query
                ) as answer:
                    status = answer.status
                    raw = await answer.read()
                    retry_after = _seconds(answer.headers.get("Retry-After"))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if isinstance(error, aiohttp.ClientConnectorCertificateError):
                    await self.close()  # the cluster's CA may have been replaced: the next session reads it again
                self._outage.failed(error)
                raise ApiUnavailable(f"{method} {path}: {type(error).__name__}: {error}") from error
            finally:
                self._metrics.count(names.API_REQUESTS, method, str(status))
                self._metrics.observe(names.API_REQUEST_SECONDS, time.monotonic() - started, method)
        self._outage.answered()
        return _decode(method, path, status, raw, retry_after)

    async def _open_session(self) -> aiohttp.ClientSession:
        async with self._opening:
            if self._session is None:
                self._session = self._new_session(await asyncio.to_thread(self._access.tls))
            return self._session

    def _new_session(self, tls: ssl.SSLContext) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONCURRENCY, ssl=tls),
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS),
            headers={"User-Agent": self._agent},
            trust_env=False,
        )

    async def _current_token(self) -> str:
        if time.monotonic() - self._token_read_at > TOKEN_SECONDS:
            self._token = await asyncio.to_thread(self._access.token)
            self._token_read_at = time.monotonic()
        return self._token


def _decode(method: str, path: str, status: int, raw: bytes, retry_after: float | None) -> Any:
    try:
        body = json.loads(raw) if raw else {}
    except ValueError:
        body = {"message": raw[:200].decode(errors="replace")}
    if status < 300:
        return body
    if status in BUSY:
        message = body.get("message") if isinstance(body, dict) else None
        raise ApiUnavailable(f"{method} {path}: HTTP {status}: {message}", retry_after=retry_after, status=status)
    raise ApiRefused(status, body if isinstance(body, dict) else {})


def _seconds(header: str | None) -> float | None:
    try:
        return None if header is None else max(0.0, float(header))
    except ValueError:  # an HTTP date, which the API server does not send
        return None
