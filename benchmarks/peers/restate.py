"""Restate: a server with a log of its own, and a service that it calls over HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from benchmarks.drains import Drain
from benchmarks.host import Bench, until
from benchmarks.peers import install
from benchmarks.peers.peer import ENDLESS, Program, free_port, program

IN_FLIGHT = 50
CLOSED = f"{IN_FLIGHT} requests in flight"
ONE = "one request"
PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class Serving:
    server: Program
    service: Program
    ingress: int


class Restate:
    """Everything as it comes, but for telemetry, which is off."""

    name = "Restate 1.7.12, Python SDK 1.3.0"
    durable = "a step's result, in the server's own log; the start is not waited for"
    drains: Sequence[str] = (CLOSED,)
    latencies: Sequence[str] = (ONE,)

    def __init__(self) -> None:
        self._python = Path()
        self._server = Path()

    def install(self) -> None:
        packages = ["restate-sdk[serde]==1.3.0", "hypercorn==0.18.0", "uvloop==0.23.0"]
        self._python = install.python_environment("restate", packages)
        self._server = install.node_packages("restate-server", ["@restatedev/restate-server@1.7.12"])

    @asynccontextmanager
    async def drain(self, bench: Bench, way: str) -> AsyncIterator[Drain]:
        async with self._serving(bench) as serving, asyncio.TaskGroup() as group:
            ended = 0

            async def call() -> None:
                nonlocal ended
                client = await Client.open(serving.ingress)
                while True:
                    await client.call()
                    ended += 1

            async def done() -> int:
                return ended

            calls = [group.create_task(call()) for _ in range(IN_FLIGHT)]
            try:
                yield Drain(ENDLESS, done, {"worker": [serving.service.pid], "server": [serving.server.pid]})
            finally:
                for each in calls:
                    each.cancel()

    async def latency(self, bench: Bench, way: str, runs: int) -> Sequence[float]:
        found = []
        async with self._serving(bench) as serving:
            client = await Client.open(serving.ingress)
            for number in range(-10, runs):
                started = time.perf_counter()
                await client.call()
                if number >= 0:
                    found.append((time.perf_counter() - started) * 1000)
                await asyncio.sleep(PAUSE_SECONDS)
        return found

    @asynccontextmanager
    async def _serving(self, bench: Bench) -> AsyncIterator[Serving]:
        ingress, admin, node, service_port = (free_port() for _ in range(4))
        config = bench.folder / "restate.toml"
        config.write_text(
            f'bind-ip = "127.0.0.1"\nadvertised-host = "127.0.0.1"\nlisten-mode = "tcp"\nbind-port = {node}\n'
            f"[ingress]\nbind-port = {ingress}\n[admin]\nbind-port = {admin}\n"
        )
        base = bench.folder / f"restate-{node}"
        env = {"RESTATE_DISABLE_TELEMETRY": "true", "RESTATE_LOG_FILTER": "warn"}
        server = (self._server / "restate-server", "--config-file", config, "--base-dir", base, "--no-logo")
        hypercorn = (self._python / "hypercorn", "-k", "uvloop", "-b", f"127.0.0.1:{service_port}")
        async with (
            program(bench, "restate server", *server, env=env) as serving,
            program(bench, "restate service", *hypercorn, "restate_service:app", folder=install.PROGRAMS) as service,
            aiohttp.ClientSession() as session,
        ):
            for port in (admin, ingress, service_port):
                await bench.until_listening(port, "Restate")
            await _register(session, admin, service_port)
            await bench.wait_until_idle()
            yield Serving(serving, service, ingress)


async def _register(session: aiohttp.ClientSession, admin: int, service_port: int) -> None:
    async def registered() -> bool:
        body = {"uri": f"http://127.0.0.1:{service_port}"}
        try:
            async with session.post(f"http://127.0.0.1:{admin}/deployments", json=body) as answer:
                return answer.status < 300
        except aiohttp.ClientError:
            return False

    await until(registered, "the service's registration with Restate", seconds=60.0, interval=0.5)


class Client:
    """A kept connection and nothing more: a whole HTTP client takes more processor time than the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(self) -> None:
        body = json.dumps(1)
        head = (
            "POST /Bench/chain HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._writer.write((head + body).encode())
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        if " 200 " not in answer.partition("\r\n")[0]:
            raise RuntimeError(answer)
        length = answer.partition("content-length:")[2].split()[0]
        await self._reader.readexactly(int(length))
