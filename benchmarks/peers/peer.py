"""What the benchmarks know of a peer, and the programs that run in its own environment."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from localcluster.console import Failure

from benchmarks.drains import Drain
from benchmarks.host import Bench

READY = "READY"
READY_SECONDS = 120.0
"""The longest is that of a program which first stores its backlog."""

ENDLESS = 1 << 40
"""Runs of a peer that is measured while its own process starts them, for as long as it is watched."""


class Peer(Protocol):
    """One engine. `drains` and `latencies` name the ways in which it is measured; each gives a line."""

    name: str
    durable: str
    """What is on disk before a step's body, and before the next one's."""
    drains: Sequence[str]
    latencies: Sequence[str]

    def install(self) -> None:
        """Make it ready on this machine. Raises `Unavailable`."""

    def drain(self, bench: Bench, way: str) -> AbstractAsyncContextManager[Drain]:
        """At work on 5-step runs while the block is open."""

    async def latency(self, bench: Bench, way: str, runs: int) -> Sequence[float]:
        """Milliseconds from start to result of so many 5-step runs, one after the other, on an idle system."""


@dataclass
class Program:
    """A running program of a peer."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    async def line(self, seconds: float = READY_SECONDS) -> str:
        """Its next line. Raises Failure with the end of its log when it ends, or says nothing for so long."""
        assert self.process.stdout is not None
        try:
            found = await asyncio.wait_for(self.process.stdout.readline(), seconds)
        except TimeoutError:
            raise Failure(f"{self.name} has said nothing for {seconds:.0f}s: {self.last_words()}") from None
        if not found:
            raise Failure(f"{self.name} has ended: {self.last_words()}")
        return found.decode().strip()

    async def ready(self) -> None:
        while await self.line() != READY:
            pass

    async def numbers(self, count: int) -> list[float]:
        """Its next `count` lines, each a number."""
        return [float(await self.line()) for _ in range(count)]

    async def ask(self) -> str:
        """The answer to an empty line."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        return await self.line()

    def last_words(self) -> str:
        return " / ".join(self.log.read_text(errors="replace").splitlines()[-3:])


@asynccontextmanager
async def program(
    bench: Bench, name: str, *argv: str | Path, folder: Path | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[Program]:
    """A program of a peer's; killed at the end of the block: nothing of it is needed any more."""
    log = bench.folder / f"{name.replace(' ', '-')}.log"
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # it may be a wrapper: what it starts ends with it
        )
    try:
        yield Program(name, process, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
