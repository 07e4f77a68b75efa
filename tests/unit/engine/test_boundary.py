"""Whatever a body or a step raises or returns is an outcome: the loop and the other runs go on."""

import asyncio
import enum
import sys

import pytest
from perdure import StepFailed
from perdure.errors import CancelRequested
from perdure.model.outcome import Cancelled, Mismatch
from perdure.model.rows import DECLARED_WORKFLOW
from perdure.model.states import CancelMode, StepStatus

from tests.support.engine import Engine, failed, output_of, statuses
from tests.support.memorylog import MemoryRun


class Unreadable(Exception):
    """Cannot even be printed."""

    def __str__(self):
        raise ZeroDivisionError


def recursion():
    return recursion()


def raising(error: BaseException):
    def raises():
        raise error

    return raises


async def awaiting_a_cancelled_future():
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


RAISED = {
    "RecursionError": recursion,
    "MemoryError": raising(MemoryError()),
    "SystemExit": raising(SystemExit(1)),
    "KeyboardInterrupt": raising(KeyboardInterrupt()),
    "GeneratorExit": raising(GeneratorExit()),
    "asyncio.exceptions.CancelledError": raising(asyncio.CancelledError()),
    "tests.unit.engine.test_boundary.Unreadable": raising(Unreadable()),
    "ExceptionGroup": raising(ExceptionGroup("both", [ValueError("a"), KeyError("b")])),
    "BaseExceptionGroup": raising(BaseExceptionGroup("both", [SystemExit(1), KeyError("b")])),
    "perdure.errors.CancelRequested": raising(CancelRequested("from user code")),
    "ValueError": raising(ValueError("\ud800\0")),
}


def short(name: str) -> str:
    return name.rpartition(".")[2]


@pytest.mark.parametrize("name", RAISED)
async def test_whatever_a_body_raises_is_a_failed_run(engine: Engine, name):
    @engine.workflow
    async def flow():
        RAISED[name]()

    error = (await engine.error(flow)).error
    assert short(error.type) == short(name)
    error.to_json().encode("ascii")
    assert "\\u0000" not in error.to_json()


@pytest.mark.parametrize("name", RAISED)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_whatever_a_step_raises_is_its_failure_and_is_caught_as_an_exception(engine: Engine, name, is_async):
    def fails():
        RAISED[name]()

    async def fails_async():
        RAISED[name]()

    step = engine.step(name="fails")(fails_async if is_async else fails)

    @engine.workflow
    async def flow():
        try:
            await asyncio.gather(step())
        except Exception as error:
            return type(error).__qualname__, repr(error)

    run = engine.run_of(flow)
    kind, message = output_of(await engine.execute(run))
    assert kind == short(name) or (kind == "StepFailed" and short(name) in message)
    assert statuses(run) == [StepStatus.FAILED]
    assert output_of(await engine.execute(run)) == [kind, message]


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
async def test_a_sync_step_that_raises_stop_iteration_fails_and_does_not_hang(engine: Engine, kind):
    @engine.step
    def fails():
        raise kind("x")

    @engine.workflow
    async def flow():
        try:
            await fails()
        except Exception as error:
            return type(error).__name__

    assert await engine.output(flow) in ("RuntimeError", "StepFailed")


async def test_a_future_that_somebody_else_cancelled_is_a_failure_of_the_step_that_awaits_it(engine: Engine):
    @engine.step
    async def waits():
        await awaiting_a_cancelled_future()

    @engine.workflow
    async def flow():
        with pytest.raises(StepFailed, match="CancelledError"):
            await waits()

    await engine.output(flow)


async def test_a_body_that_cancels_its_own_task_is_a_failed_run(engine: Engine):
    @engine.workflow
    async def flow():
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    assert "CancelledError" in (await engine.error(flow)).error.type


async def test_a_race_in_the_body_cancels_the_step_records_nothing_of_it_and_fails_the_run(engine: Engine):
    @engine.step
    async def slow():
        await asyncio.Event().wait()

    @engine.workflow
    async def flow():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await slow()
        return "went on"

    run = engine.run_of(flow)
    assert failed(await engine.execute(run)).error.code == "PRD-315"
    assert statuses(run) == [StepStatus.RUNNING]


def deep(levels: int):
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


def cycle():
    value: list = []
    value.append(value)
    return value


class Plain:
    """Not storable."""


class Colour(enum.Enum):
    RED = "red"


UNSTORABLE = {
    "nan": lambda: float("nan"),
    "nan inside": lambda: {"a": [float("inf")]},
    "lone surrogate": lambda: "\ud800",
    "lone surrogate in a key": lambda: {"\ud800": 1},
    "NUL": lambda: "a\0b",
    "NUL after a backslash": lambda: "\\\0",
    "cycle": cycle,
    "deep nesting": lambda: deep(100_000),
    "an object": Plain,
    "a coroutine function": lambda: deep,
    "a generator": lambda: (n for n in range(3)),
    "too large": lambda: "x" * (1024 * 1024),
}


@pytest.mark.parametrize("name", UNSTORABLE)
async def test_a_result_that_cannot_be_stored_fails_its_step_readably_and_is_not_retried(engine: Engine, name):
    @engine.step(name="makes", max_attempts=3, interval=0)
    async def makes():
        engine.bodies.append("run")
        return UNSTORABLE[name]()

    @engine.workflow
    async def flow():
        await makes()

    run = engine.run_of(flow)
    error = (await engine.execute(run)).error
    assert error.code == ("PRD-403" if name == "too large" else "PRD-401")
    assert "the result of step makes" in error.message
    assert error.step == "makes"
    assert statuses(run) == [StepStatus.FAILED]
    assert engine.bodies == ["run"]


@pytest.mark.parametrize("name", UNSTORABLE)
async def test_an_argument_that_cannot_be_stored_is_an_error_of_the_call(engine: Engine, name):
    @engine.step(name="takes")
    async def takes(value): ...

    @engine.workflow
    async def flow():
        await takes(UNSTORABLE[name]())

    run = engine.run_of(flow)
    error = (await engine.execute(run)).error
    assert error.code == ("PRD-403" if name == "too large" else "PRD-401")
    assert "the arguments of step takes" in error.message
    assert run.rows == {}


@pytest.mark.parametrize("name", UNSTORABLE)
async def test_a_run_whose_result_cannot_be_stored_fails_readably(engine: Engine, name):
    @engine.workflow
    async def flow():
        return UNSTORABLE[name]()

    error = (await engine.error(flow)).error
    assert error.code == ("PRD-403" if name == "too large" else "PRD-401")
    assert "the result of workflow flow" in error.message


async def test_a_result_that_is_not_what_the_annotation_says_fails_its_step(engine: Engine):
    @engine.step
    async def makes() -> int:
        return "not a number"

    @engine.workflow
    async def flow():
        await makes()

    error = (await engine.error(flow)).error
    assert error.code == "PRD-401"
    assert "int" in error.message


async def test_text_that_only_looks_like_an_escape_is_fine(engine: Engine):
    text = "\\u0000 \\\\u0000 NaN Infinity \U0001f600"

    @engine.step
    async def echo(value: str):
        return {"echo": value}

    @engine.workflow
    async def flow():
        return await echo(text)

    assert await engine.output(flow) == {"echo": text}


async def test_an_input_of_the_wrong_type_fails_the_run_and_names_the_parameter(engine: Engine):
    @engine.workflow
    async def flow(cents: int): ...

    error = (await engine.execute(MemoryRun("flow", '{"cents": "a lot"}'))).error
    assert error.code == "PRD-402"
    assert "'cents' of workflow flow is not int" in error.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1}', "needs b"),
        ('{"a": 1, "b": 2, "c": 3}', "no parameter 'c'"),
        ("[1]", "needs b"),
        ("[1, 2, 3]", "3 values"),
        ("7", "needs b"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
async def test_an_input_that_makes_no_call_fails_the_run_readably(engine: Engine, text, says):
    @engine.workflow
    async def flow(a, b): ...

    error = (await engine.execute(MemoryRun("flow", text))).error
    assert error.code == "PRD-402"
    assert says in error.message


async def test_an_unknown_workflow_is_left_for_a_worker_that_knows_it(engine: Engine):
    ending = await engine.execute(MemoryRun(DECLARED_WORKFLOW))
    assert isinstance(ending, Mismatch)
    assert ending.error.code == "PRD-304"


async def test_a_cancelled_run_is_ended_without_its_body(engine: Engine):
    @engine.workflow
    async def flow():
        engine.bodies.append("run")

    run = engine.run_of(flow, cancel_mode=CancelMode.GRACEFUL)
    assert isinstance(await engine.execute(run), Cancelled)
    assert engine.bodies == []


async def test_a_low_recursion_limit_left_by_user_code_is_a_failure_too(engine: Engine):
    @engine.step
    async def digs():
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(len(__import__("inspect").stack()) + 40)
        try:
            recursion()
        finally:
            sys.setrecursionlimit(limit)

    @engine.workflow
    async def flow():
        await digs()

    assert (await engine.error(flow)).error.type == "RecursionError"
