"""Random programs of steps under random interruptions: always the same result, and nothing recorded runs again.

The log is in memory and keeps the journal's rules; the claims end by a crash before or after a start was committed,
by losing the run, by release, by parking, or by the body's end.
"""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure import current
from perdure.api import step, workflow
from perdure.engine.execute import Execution
from perdure.engine.registry import Registry
from perdure.errors import CancelRequested, OwnershipLost, ReleaseRequested
from perdure.model.outcome import Cancelled, Failed, Lost, Parked, Released, Succeeded
from perdure.model.states import StepStatus

from tests.support.memorylog import MemoryLog, MemoryRun
from tests.support.sealing import SEALED, Outside

MAX_CLAIMS = 200


@dataclass(frozen=True)
class Leaf:
    """One step: fails so often before it succeeds, may use up all attempts, may wait long or run in a thread."""

    fails: int
    attempts: int
    pauses: int
    long_backoff: bool
    in_thread: bool


@dataclass(frozen=True)
class Sequence:
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Gather:
    parts: tuple[Leaf, ...]
    awaited_in_reverse: bool


@dataclass(frozen=True)
class Fallback:
    first: Leaf
    second: Any


leaves = st.builds(
    Leaf, st.integers(0, 3), st.integers(1, 4), st.integers(0, 2), st.booleans(), st.sampled_from([False, False, True])
)
programs = st.recursive(
    leaves,
    lambda inner: (
        st.builds(Sequence, st.lists(inner, min_size=1, max_size=4).map(tuple))
        | st.builds(Gather, st.lists(leaves, min_size=1, max_size=4).map(tuple), st.booleans())
        | st.builds(Fallback, leaves, inner)
    ),
    max_leaves=8,
)


@dataclass
class World:
    """Everything outside the run: how often each step's body was entered and ended, and what the rows said then."""

    run: MemoryRun
    failures: dict[int, int] = field(default_factory=dict)
    reruns: list[int] = field(default_factory=list)
    undurable: list[int] = field(default_factory=list)

    def enter(self, index: int) -> None:
        row = self.run.rows[index]
        if row.status.final:
            self.reruns.append(index)
        if row.status is not StepStatus.RUNNING:
            self.undurable.append(index)


class Program:
    """A workflow made of a description. Step bodies fail by how often they are recorded as failed, not by luck."""

    def __init__(self, root: Any, threads: Executor) -> None:
        self.registry = Registry()
        self.threads = threads
        self.run = MemoryRun("program", "[]")
        self.world = World(self.run)
        self._steps: dict[Leaf, Any] = {}
        self._register(root)

        async def program():
            return await self._play(root)

        workflow(name="program", registry=self.registry)(program)

    def _register(self, part: Any) -> None:
        match part:
            case Leaf():
                if part not in self._steps:
                    self._steps[part] = self._step_of(part, f"step{len(self._steps)}")
            case Sequence(parts) | Gather(parts, _):
                for inner in parts:
                    self._register(inner)
            case Fallback(first, second):
                self._register(first)
                self._register(second)

    def _step_of(self, leaf: Leaf, name: str) -> Any:
        def outcome() -> dict[str, int]:
            info = current().step
            self.world.enter(info.index)
            if info.attempt <= leaf.fails:
                raise ValueError(f"failure {info.attempt}")
            return {"index": info.index, "attempt": info.attempt}

        async def on_loop(value: int) -> dict[str, int]:
            seen = outcome()
            for _ in range(leaf.pauses):
                await asyncio.sleep(0)
            return seen

        def in_thread(value: int) -> dict[str, int]:
            return outcome()

        return step(
            name=name,
            max_attempts=leaf.attempts,
            interval=100 if leaf.long_backoff else 0,
            registry=self.registry,
        )(in_thread if leaf.in_thread else on_loop)

    async def _play(self, part: Any) -> Any:
        match part:
            case Leaf():
                return await self._steps[part](7)
            case Sequence(parts):
                return [await self._play(inner) for inner in parts]
            case Gather(parts, awaited_in_reverse):
                calls = [self._steps[inner](7) for inner in parts]
                if awaited_in_reverse:
                    calls.reverse()
                seen = await asyncio.gather(*calls, return_exceptions=True)
                return [str(one) if isinstance(one, Exception) else one for one in seen]
            case Fallback(first, second):
                try:
                    return await self._steps[first](7)
                except Exception as error:
                    return [str(error), await self._play(second)]

    async def claim(self, trouble: tuple[str, int]) -> Any:
        """One claim, with one trouble at the given event (a start, or a turn of the loop) if it comes to that."""
        kind, when = trouble
        claimed = self.run.claim()
        starts = 0

        def before_start(write: Any) -> None:
            nonlocal starts
            starts += 1
            if starts > when and kind == "die before start":
                raise OwnershipLost("died")

        log = MemoryLog(self.run, before_start)
        execution = Execution(claimed, self.registry, log, threads=self.threads, unwind=5)
        task = asyncio.ensure_future(execution.run())
        for _ in range(when if kind in SIGNALS else 0):
            await asyncio.sleep(0)
        if kind in SIGNALS:
            execution.interrupt(SIGNALS[kind])
        ending = await asyncio.wait_for(task, 30)
        if kind in ("die before the end", "die", "die before start") or ending == Lost():
            self.run.fence += 1
            return None
        log.commit()
        self.run.elapsed = 1000.0
        return ending

    async def until_done(self, troubles: list[tuple[str, int]]) -> Any:
        for number in range(MAX_CLAIMS):
            ending = await self.claim(troubles[number] if number < len(troubles) else ("none", 0))
            if isinstance(ending, Succeeded | Failed | Cancelled):
                return ending
            assert ending is None or isinstance(ending, Parked | Released), ending
        raise AssertionError("the run does not end")


SIGNALS = {
    "release": ReleaseRequested("drain"),
    "release now": ReleaseRequested("drain", immediate=True),
    "die": OwnershipLost("killed"),
}
KINDS = [*SIGNALS, "die before start", "die before the end"]
troubles = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 12)), max_size=8)


@pytest.fixture(scope="module")
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@given(programs, troubles)
@settings(max_examples=150)
def test_a_program_gives_the_same_result_under_any_interruptions_and_reruns_nothing_recorded(threads, root, troubles):
    async def check() -> None:
        calm = Program(root, threads)
        expected = await calm.until_done([])
        program = Program(root, threads)
        ending = await program.until_done(troubles)
        assert ending == expected
        assert program.world.reruns == []
        assert program.world.undurable == []
        assert _rows(program) == _rows(calm)

    asyncio.run(check())


@given(programs, troubles, st.integers(0, 20))
@settings(max_examples=50)
def test_a_cancelled_program_ends_cancelled_or_as_it_would_have(threads, root, troubles, when):
    async def check() -> None:
        expected = await Program(root, threads).until_done([])
        program = Program(root, threads)
        for trouble in troubles:
            await program.claim(trouble)
        claimed = program.run.claim()
        log = MemoryLog(program.run)
        execution = Execution(claimed, program.registry, log, threads=threads, unwind=5)
        task = asyncio.ensure_future(execution.run())
        for _ in range(when):
            await asyncio.sleep(0)
        execution.interrupt(CancelRequested("x"))
        ending = await asyncio.wait_for(task, 30)
        assert ending == Cancelled("x") or ending == expected or isinstance(ending, Parked)
        assert program.world.reruns == []

    asyncio.run(check())


class Changing(Program):
    """One whose workers are configured otherwise at each claim: values of several serializers stand side by side."""

    def __init__(self, root: Any, threads: Executor, uses: list[tuple[str, list[str]]]) -> None:
        super().__init__(root, threads)
        self.registry.serializers.add(SEALED)
        self.registry.serializers.add_codec(Outside())
        self._uses = iter(uses)

    async def claim(self, trouble: tuple[str, int]) -> Any:
        serializer, codecs = next(self._uses, ("sealed", ["outside"]))
        self.registry.serializers.use(serializer, codecs)
        return await super().claim(trouble)

    def read(self, text: str) -> str:
        return self.registry.serializers.read(text, "a value")


ways = st.lists(st.sampled_from([("", []), ("sealed", []), ("", ["outside"]), ("sealed", ["outside"])]), max_size=6)


@given(programs, troubles, ways)
@settings(max_examples=60)
def test_a_program_gives_the_same_result_however_its_values_are_written(threads, root, troubles, uses):
    async def check() -> None:
        calm = Program(root, threads)
        expected = await calm.until_done([])
        program = Changing(root, threads, uses)
        ending = await program.until_done(troubles)
        assert type(ending) is type(expected)
        if isinstance(ending, Succeeded):
            assert program.read(ending.output) == expected.output
        else:
            assert (ending.error.type, ending.error.message) == (expected.error.type, expected.error.message)
        assert program.world.reruns == []
        assert program.world.undurable == []
        rows = program.run.rows
        program.run.rows = {
            index: replace(row, input=program.read(row.input), output=row.output and program.read(row.output))
            for index, row in rows.items()
        }
        assert _rows(program) == _rows(calm)

    asyncio.run(check())


def _rows(program: Program) -> list[tuple[int, str, StepStatus, str, str | None]]:
    return [
        (index, row.name, row.status, row.input, row.output if row.output is None else json.loads(row.output))
        for index, row in sorted(program.run.rows.items())
    ]
