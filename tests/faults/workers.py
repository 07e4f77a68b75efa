"""The worker processes of the faults, each behind its own proxy, and what can be done to them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.faults.numbered import writer
from tests.faults.programs import LEASE
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import CLOCK_OFF, clock_offset
from tests.support.workerproc import ROOT, WorkerProcess

SLOTS = 10
STOP_POLL = 0.05
DRAIN_SECONDS = 4.0
"""More than most bodies take, less than the slowest do: drains end in both ways."""

VERSIONS = 2
"""Releases of the same code: each process that begins is of another one than that before it, and takes its runs up."""

SKEWED = Path(__file__).parent / "skewed"


class FaultyWorker:
    """One worker of the pool: started again and again, always on the same proxy."""

    def __init__(self, number: int, seed: int, url: str, port: int, count: Counter[str]) -> None:
        self.number = number
        self.pod_uid = f"uid-{seed}-{number}"
        # Every other one is as behind a pooler: nobody can end its sessions from outside.
        self.proxy = FaultProxy(port, hide=number % 2 == 0)
        self._seed = seed
        self._url = url
        self._count = count
        self._starts = 0
        self._process: WorkerProcess
        self.turn = asyncio.Lock()
        """Held by the fault that has this worker's process in its hands."""

    async def __aenter__(self) -> Self:
        await self.proxy.__aenter__()
        self._process = WorkerProcess(
            self.proxy.through(self._url),
            modules="tests.faults.flows",
            environment={"FAULTS_DATABASE_URL": self._url},
            pod_name=f"worker-{self.number}",
            pod_uid=self.pod_uid,
            lease_seconds=LEASE,
            slots=SLOTS,
            drain_seconds=DRAIN_SECONDS,
        )
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.__exit__(None, None, None)
        await self.proxy.__aexit__(kind, error, trace)

    def start(self) -> None:
        """Begin a new process."""
        offset = clock_offset(self._seed, self.number, self._starts)
        release = f"release-{(self.number + self._starts) % VERSIONS}"
        serializer = writer(self.number, self._starts)
        self._starts += 1
        if offset:
            self._count[CLOCK_OFF] += 1
        self._process.start(
            PYTHONPATH=os.pathsep.join([str(SKEWED), str(ROOT), str(ROOT / "worker_image")]),
            FAULTS_CLOCK_OFFSET=str(offset),
            PERDURE_VERSION=release,
            PERDURE_SERIALIZER=serializer,
        )

    @property
    def alive(self) -> bool:
        """Whether the process is there, stopped or not."""
        return self._process.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """A signal to the process; nothing when it has ended."""
        if self.alive:
            self._process.send(number)

    async def gone(self, seconds: float) -> bool:
        """Whether the process ends within this time."""
        try:
            async with asyncio.timeout(seconds):
                while self.alive:  # noqa: ASYNC110 - a process has no event
                    await asyncio.sleep(STOP_POLL)
        except TimeoutError:
            return False
        return True

    async def kill(self) -> None:
        """End the process at once."""
        self.send(signal.SIGKILL)
        await asyncio.to_thread(self._process.process.wait)

    def tail(self, lines: int) -> list[str]:
        """The last lines of its log."""
        return self._process.text().splitlines()[-lines:]

    def about(self, word: str, lines: int) -> list[str]:
        """The last lines of its log with this word."""
        return [line for line in self._process.text().splitlines() if word in line][-lines:]

    async def keep_alive(self) -> None:
        """Start it again when it has ended by itself, for ever: what a pod's restart policy does."""
        while True:
            await asyncio.sleep(STOP_POLL)
            if not self.alive and not self.turn.locked():
                self.start()
