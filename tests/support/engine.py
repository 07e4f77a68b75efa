"""Runs workflows of a test on the in-memory log: what most engine tests need, in one object (fixture `engine`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from perdure.api import Workflow, step, workflow
from perdure.engine.execute import Execution
from perdure.engine.registry import Registry
from perdure.errors import ControlSignal
from perdure.model.outcome import Ending, Failed, Succeeded
from perdure.model.rows import StepWrite
from perdure.model.states import StepStatus

from tests.support.memorylog import MemoryLog, MemoryRun

PATIENCE = 10.0
"""Seconds that a test waits for what must happen at once; only a hanging test ever waits that long."""


class Claim:
    """One claim that runs in the background of a test."""

    def __init__(self, execution: Execution, log: MemoryLog) -> None:
        self.execution = execution
        self.log = log
        self._task = asyncio.ensure_future(execution.run())

    def interrupt(self, signal: ControlSignal) -> None:
        self.execution.interrupt(signal)

    async def ending(self) -> Ending:
        return await asyncio.wait_for(self._task, PATIENCE)

    @property
    def done(self) -> bool:
        return self._task.done()


class Engine:
    """A registry of its own, the decorators for it, and claims of runs in memory."""

    def __init__(self, threads: Executor) -> None:
        self.registry = Registry()
        self.threads = threads
        self.bodies: list[Any] = []
        """What step bodies of the test noted, in order."""

    def step(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        decorate = step(registry=self.registry, **options)
        return decorate if function is None else decorate(function)

    def workflow(self, function: Callable[..., Any]) -> Workflow[..., Any]:
        return workflow(name=function.__name__, registry=self.registry)(function)

    def run_of(self, flow: Workflow[..., Any], *args: Any, **options: Any) -> MemoryRun:
        return MemoryRun(flow.definition.name, json.dumps(args), **options)

    def claim(self, run: MemoryRun, before_start: Callable[[StepWrite], None] | None = None, **options: Any) -> Claim:
        claimed = run.claim()
        log = MemoryLog(run, before_start)
        return Claim(Execution(claimed, self.registry, log, threads=self.threads, **options), log)

    async def execute(self, run: MemoryRun, *, crash: bool = False, **options: Any) -> Ending:
        """One claim to its ending; after a crash what was only recorded and not committed is lost."""
        claim = self.claim(run, **options)
        ending = await claim.ending()
        if not crash:
            claim.log.commit()
        return ending

    async def output(self, flow: Workflow[..., Any], *args: Any) -> Any:
        """Result of a workflow that must succeed."""
        return output_of(await self.execute(self.run_of(flow, *args)))

    async def error(self, flow: Workflow[..., Any], *args: Any) -> Failed:
        """Ending of a workflow that must fail."""
        return failed(await self.execute(self.run_of(flow, *args)))


class Change:
    """A workflow whose body a test changes between two claims of one run."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.body: Callable[[], Awaitable[Any]]

        @engine.workflow
        async def flow() -> Any:
            return await self.body()

        self.run = engine.run_of(flow)

    async def claim(self, body: Callable[[], Awaitable[Any]]) -> Ending:
        self.body = body
        return await self.engine.execute(self.run)

    def rows(self) -> list[str]:
        return [f"{index} {row.name}" for index, row in sorted(self.run.rows.items())]


class Held:
    """A workflow of steps that wait until the test lets them go."""

    def __init__(self, engine: Engine) -> None:
        self.gate = asyncio.Event()
        self.noted: list[str] = []

        async def held(n: Any) -> Any:
            self.noted.append(f"begin {n}")
            try:
                await self.gate.wait()
            finally:
                self.noted.append(f"end {n}")
            return n

        self.step = engine.step(held, name="held")

    async def begun(self, claim: Claim, count: int = 1) -> None:
        await until(lambda: claim.execution.steps_in_progress == count and len(self.noted) >= count)


def output_of(ending: Ending) -> Any:
    assert isinstance(ending, Succeeded), ending
    return json.loads(ending.output)


def failed(ending: Ending) -> Failed:
    assert isinstance(ending, Failed), ending
    return ending


def statuses(run: MemoryRun) -> list[StepStatus]:
    return [status for _, status in run.statuses()]


def started(writes: Sequence[StepWrite]) -> list[tuple[int, int]]:
    """Index and failures so far of each start."""
    return [(write.index, write.attempts) for write in writes if write.status is StepStatus.RUNNING]


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event of its own
            await asyncio.sleep(0)
