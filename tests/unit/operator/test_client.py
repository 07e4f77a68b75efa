"""The HTTP layer against a server that misbehaves: it slows down, refuses, cuts, hangs and changes its mind."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from perdure.telemetry import names
from perdure.telemetry.prometheus import Metrics
from perdure_operator.kube import client as module
from perdure_operator.kube.access import Access
from perdure_operator.kube.client import CONCURRENCY, Client
from perdure_operator.kube.errors import ApiRefused, ApiUnavailable

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers each request with the next of `script`, the last one for ever."""

    def __init__(self) -> None:
        self.script: list[Answer] = [ok]
        self.seen: list[web.Request] = []
        self.tokens: list[str] = []
        self.at_once = self.most_at_once = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.tokens.append(request.headers["Authorization"].removeprefix("Bearer "))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            return await answer(request)
        finally:
            self.at_once -= 1


async def ok(_: web.Request) -> web.StreamResponse:
    return web.json_response({"fine": True})


def status(code: int, body: dict[str, Any] | None = None, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body or {"message": "no"}, status=code, headers=headers)

    return answer


async def cut(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, str]]:
    found = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", found.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = runner.addresses[0]
    yield found, f"http://{address[0]}:{address[1]}"
    await runner.cleanup()


class PlainAccess(Access):
    """The test server speaks no TLS."""

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(names.declared(names.Component.OPERATOR))


@pytest.fixture
async def client(
    server: tuple[Server, str], metrics: Metrics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Client]:
    monkeypatch.setattr(module.random, "uniform", lambda low, high: 0.0)  # no waiting between tries
    token = tmp_path / "token"
    token.write_text("first\n")
    async with Client(PlainAccess(server[1], tmp_path / "ca", token), metrics, user_agent="test/1") as found:
        yield found


async def test_an_answer_is_decoded_and_counted(client: Client, server: tuple[Server, str], metrics: Metrics) -> None:
    assert await client.request("PATCH", "/x", body=[1], content_type=module.JSON_PATCH) == {"fine": True}
    (request,) = server[0].seen
    assert request.headers["Content-Type"] == "application/json-patch+json"
    assert request.headers["User-Agent"] == "test/1"
    assert metrics.value(names.API_REQUESTS, "PATCH", "200") == 1


@pytest.mark.parametrize("trouble", [status(429, **{"Retry-After": "0"}), status(503), status(500), cut])
async def test_trouble_is_tried_again_a_few_times(client: Client, server: tuple[Server, str], trouble: Answer) -> None:
    server[0].script = [trouble, trouble, ok]
    assert await client.request("GET", "/x") == {"fine": True}
    server[0].script = [trouble]
    with pytest.raises(ApiUnavailable):
        await client.request("GET", "/x")
    # aiohttp repeats a GET by itself when a connection that it used before breaks.
    assert 6 <= len(server[0].seen) <= 9


async def test_a_long_pause_is_left_to_the_caller(client: Client, server: tuple[Server, str]) -> None:
    server[0].script = [status(429, **{"Retry-After": "3600"})]
    with pytest.raises(ApiUnavailable) as error:
        await client.request("GET", "/x")
    assert error.value.retry_after == 3600
    assert len(server[0].seen) == 1


async def test_a_write_that_must_not_be_repeated_is_sent_once(client: Client, server: tuple[Server, str]) -> None:
    server[0].script = [cut]
    with pytest.raises(ApiUnavailable):
        await client.request("PATCH", "/x", body={}, attempts=1)
    assert len(server[0].seen) == 1


async def test_a_refusal_is_told_with_what_the_server_said(client: Client, server: tuple[Server, str]) -> None:
    causes = {"details": {"name": "n", "causes": [{"field": "status.revision"}]}, "reason": "Invalid", "message": "m"}
    server[0].script = [status(422, causes)]
    with pytest.raises(ApiRefused, match="422 Invalid: m") as error:
        await client.request("PATCH", "/x", body={})
    assert error.value.causes == ("status.revision",)
    assert len(server[0].seen) == 1


async def test_a_token_that_was_replaced_is_read_again(
    client: Client, server: tuple[Server, str], tmp_path: Path
) -> None:
    await client.request("GET", "/x")
    (tmp_path / "token").write_text("second")
    server[0].script = [status(401), ok]
    assert await client.request("GET", "/x") == {"fine": True}
    assert server[0].tokens == ["first", "first", "second"]
    server[0].script = [status(401)]
    with pytest.raises(ApiRefused):
        await client.request("GET", "/x")


async def test_a_token_file_that_is_not_there_is_no_answer(
    client: Client, server: tuple[Server, str], tmp_path: Path
) -> None:
    (tmp_path / "token").unlink()
    with pytest.raises(ApiUnavailable):
        await client.request("GET", "/x", attempts=1)
    assert server[0].seen == []


async def test_a_server_that_hangs_is_left(
    client: Client, server: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.Response()

    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.1)
    server[0].script = [hang]
    with pytest.raises(ApiUnavailable):
        await client.request("GET", "/x", attempts=1)
    released.set()


async def test_requests_at_once_are_bounded(client: Client, server: tuple[Server, str]) -> None:
    arrived = asyncio.Semaphore(0)
    go = asyncio.Event()

    async def wait(_: web.Request) -> web.StreamResponse:
        arrived.release()
        await go.wait()
        return web.json_response({})

    server[0].script = [wait]
    requests = [asyncio.create_task(client.request("GET", "/x")) for _ in range(CONCURRENCY * 2)]
    for _ in range(CONCURRENCY):
        await arrived.acquire()
    go.set()
    await asyncio.gather(*requests)
    assert server[0].most_at_once == CONCURRENCY


def page(items: list[int], following: str = "") -> Answer:
    return status(200, {"items": items, "metadata": {"continue": following}})


async def test_a_list_is_read_page_by_page_to_its_end(client: Client, server: tuple[Server, str]) -> None:
    server[0].script = [page([1, 2], "more"), page([3])]
    assert [found async for found in client.list("/x", selector="a=b")] == [[1, 2], [3]]
    queries = [dict(request.query) for request in server[0].seen]
    assert queries == [
        {"limit": "500", "labelSelector": "a=b"},
        {"limit": "500", "labelSelector": "a=b", "continue": "more"},
    ]


@pytest.mark.parametrize("trouble", [status(410), status(503)])
async def test_a_list_that_breaks_off_is_no_list(client: Client, server: tuple[Server, str], trouble: Answer) -> None:
    server[0].script = [page([1], "more"), trouble]
    with pytest.raises(ApiUnavailable):
        async for _ in client.list("/x"):
            pass


async def test_what_is_not_json_is_an_answer_all_the_same(client: Client, server: tuple[Server, str]) -> None:
    async def page_not_found(_: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text="404 page not found")

    server[0].script = [page_not_found]
    with pytest.raises(ApiRefused) as error:
        await client.request("GET", "/x")
    assert not error.value.object_missing
    assert "404 page not found" in str(error.value)
