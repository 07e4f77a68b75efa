"""Steps that are written where they are called, and options that are said of a call."""

import asyncio
import functools
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import perdure
import pytest
from perdure.engine.registry import Registry
from perdure.errors import EncodingFailed, InvalidArgument, RegistrationError
from perdure.model.outcome import Mismatch, Succeeded
from perdure.model.states import StepStatus

from tests.support.engine import Engine, failed, output_of, statuses


@dataclass
class Order:
    number: int


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    async def price(self, order: int) -> Order:
        return Order(order)

    def __call__(self, order: int) -> str:
        return f"{self.name} {order}"


async def test_an_inline_step_is_recorded_and_a_replay_does_not_run_its_closure(engine: Engine):
    @engine.workflow
    async def flow(order):
        async def price():
            engine.bodies.append(order)
            return order * 2

        return await perdure.run_step("price", price)

    run = engine.run_of(flow, 21)
    assert [output_of(await engine.execute(run)) for _ in range(2)] == [42, 42]
    assert engine.bodies == [21]
    assert run.statuses() == [("price", StepStatus.SUCCEEDED)]
    assert run.rows[0].input == "[]"


async def test_the_arguments_of_an_inline_step_are_compared_and_what_it_captures_is_not(engine: Engine):
    told = {"captured": 1, "argument": 1}

    @engine.workflow
    async def flow():
        captured = told["captured"]
        return await perdure.run_step("add", lambda n: n + captured, told["argument"])

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == 2
    assert run.rows[0].input == "[1]"
    told["captured"] = 5
    assert output_of(await engine.execute(run)) == 2
    told["argument"] = 2
    ending = await engine.execute(run)
    assert isinstance(ending, Mismatch)
    assert ending.error.code == "PRD-302"


async def test_another_name_of_an_inline_step_at_its_place_is_an_unexpected_step(engine: Engine):
    names = ["one", "two"]

    @engine.workflow
    async def flow():
        return await perdure.run_step(names[0], lambda: 1)

    run = engine.run_of(flow)
    await engine.execute(run)
    names.pop(0)
    ending = await engine.execute(run)
    assert isinstance(ending, Mismatch)
    assert ending.error.code == "PRD-301"


async def test_a_sync_body_of_an_inline_step_runs_in_a_thread_and_what_it_returns_is_awaited(engine: Engine):
    async def later(prefix):
        return prefix + perdure.current().step.name

    @engine.workflow
    async def flow():
        where = await perdure.run_step("where", lambda: threading.current_thread() is threading.main_thread())
        return [where, await perdure.run_step("later", lambda: later("from "))]

    assert await engine.output(flow) == [False, "from later"]


async def test_the_result_has_the_annotated_type_first_and_at_replay(engine: Engine):
    shop = Shop("corner")

    @engine.workflow
    async def flow():
        priced = await perdure.run_step("method", shop.price, 1)
        made = await perdure.run_step("class", Order, 2)
        partial = await perdure.run_step("partial", functools.partial(shop.price, 3))
        called = await perdure.run_step("object", shop, 4)
        clock = await perdure.run_step("builtin", time.time)
        return [type(priced) is Order, type(made) is Order, partial.number, called, clock > 0]

    run = engine.run_of(flow)
    for _ in range(2):
        assert output_of(await engine.execute(run)) == [True, True, 3, "corner 4", True]


async def test_an_inline_step_is_retried_with_all_rules_of_steps(engine: Engine):
    offered = []

    def decides(error):
        offered.append(str(error))
        return len(offered) < 2

    @engine.workflow
    async def flow():
        def shaky():
            engine.bodies.append("run")
            raise OSError(f"failure {len(engine.bodies)}")

        with pytest.raises(perdure.MaxStepRetriesExceeded) as caught:
            await perdure.run_step("shaky", shaky, max_attempts=9, interval=timedelta(0), should_retry=decides)
        return [str(error) for error in caught.value.errors]

    assert await engine.output(flow) == ["failure 1", "failure 2"]
    assert offered == ["failure 1", "failure 2"]


async def test_outside_a_run_and_inside_a_step_an_inline_step_is_a_plain_call(engine: Engine):
    call = perdure.run_step("outside", lambda n: n + 1, 1)
    assert (call.step_id, call.name) == (None, "outside")
    assert await call == 2
    assert await perdure.run_step("awaits", lambda: asyncio.sleep(0, "awaited")) == "awaited"

    @engine.step
    async def outer():
        return await perdure.run_step("inner", lambda: perdure.current().step.name)

    @engine.workflow
    async def flow():
        return await outer()

    run = engine.run_of(flow)
    assert output_of(await engine.execute(run)) == outer.definition.name
    assert statuses(run) == [StepStatus.SUCCEEDED]


async def test_an_inline_step_in_a_sync_step_says_what_to_do(engine: Engine):
    @engine.step
    def outer():
        perdure.run_step("inner", lambda: 1)

    @engine.workflow
    async def flow():
        with pytest.raises(RuntimeError, match="call the function itself"):
            await outer()

    await engine.output(flow)


def generator():
    yield 1


class Local:
    def unreadable(self) -> "Missing":  # noqa: F821
        return None


@pytest.mark.parametrize(
    ("name", "body", "options"),
    [
        ("", len, {}),
        ("a b", len, {}),
        ("perdure.sleep", len, {}),
        (5, len, {}),
        ("x", 7, {}),
        ("x", generator, {}),
        ("x", Local().unreadable, {}),
        ("x", len, {"max_attempts": -1}),
        ("x", len, {"timeout": 0}),
        ("x", len, {"preemptible": True}),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
async def test_a_refused_inline_step_takes_no_index(engine: Engine, name, body, options):
    @engine.workflow
    async def flow():
        with pytest.raises(InvalidArgument):
            perdure.run_step(name, body, **options)
        call = perdure.run_step("next", lambda: 1)
        await call
        return call.step_id

    assert await engine.output(flow) == 0


async def test_arguments_that_cannot_be_recorded_are_refused_and_take_no_index(engine: Engine):
    @engine.workflow
    async def flow():
        with pytest.raises(EncodingFailed):
            perdure.run_step("x", len, object())
        call = perdure.run_step("next", lambda: 1)
        await call
        return call.step_id

    assert await engine.output(flow) == 0


async def test_an_option_that_steps_do_not_have_is_a_type_error():
    with pytest.raises(TypeError):
        perdure.run_step("x", len, attempts=3)  # type: ignore[call-overload]


# -- options at the call


async def test_options_at_the_call_keep_the_name_and_leave_the_step_as_it_was(engine: Engine):
    @engine.step(name="shaky", interval=0)
    async def shaky():
        engine.bodies.append("run")
        raise OSError(f"failure {len(engine.bodies)}")

    patient = shaky.options(max_attempts=3)

    @engine.workflow
    async def flow():
        with pytest.raises(perdure.MaxStepRetriesExceeded):
            await patient()
        with pytest.raises(OSError, match="failure 4"):
            await shaky()

    run = engine.run_of(flow)
    assert isinstance(await engine.execute(run), Succeeded)
    assert [name for name, _ in run.statuses()] == ["shaky", "shaky"]
    assert shaky.definition.options.max_attempts == 1


def test_options_are_added_to_those_of_the_step_and_none_takes_one_away(engine: Engine):
    @engine.step(timeout=timedelta(minutes=1), max_attempts=4, should_retry=lambda error: False)
    async def known(): ...

    changed = known.options(interval=timedelta(seconds=3)).options(timeout=None, should_retry=None)
    options = changed.definition.options
    assert (options.max_attempts, options.interval, options.timeout, options.should_retry) == (4, 3.0, None, None)
    assert known.definition.options.timeout == 60.0


def test_options_of_a_transaction_are_those_of_a_transaction():
    @perdure.transaction(registry=Registry())
    async def note(connection): ...

    changed = note.options(max_attempts=2)
    assert type(changed) is type(note)
    assert changed.definition.transaction == "read_committed"


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": -1},
        {"max_attempts": 1_000_001},
        {"max_attempts": True},
        {"max_attempts": 1.5},
        {"interval": -1},
        {"interval": timedelta(seconds=-1)},
        {"interval": "1"},
        {"interval": 4e9},
        {"backoff_rate": float("nan")},
        {"backoff_rate": timedelta.max},
        {"backoff_rate": "2"},
        {"max_interval": float("inf")},
        {"timeout": 0},
        {"timeout": timedelta(0)},
        {"timeout": timedelta.max},
        {"timeout": True},
        {"preemptible": 1},
        {"should_retry": "no"},
    ],
    ids=str,
)
def test_an_option_out_of_range_is_refused_at_the_call_and_at_registration(engine: Engine, options):
    @engine.step
    async def known(): ...

    with pytest.raises(InvalidArgument) as at_the_call:
        known.options(**options)
    with pytest.raises(RegistrationError) as at_registration:
        engine.step(**options)(known.function)
    assert (at_the_call.value.code, at_registration.value.code) == ("PRD-520", "PRD-103")
    assert at_the_call.value.message == at_registration.value.message


def test_a_sync_step_cannot_be_preemptible(engine: Engine):
    @engine.step
    def known(): ...

    with pytest.raises(InvalidArgument, match="nothing can stop"):
        known.options(preemptible=True)
    with pytest.raises(RegistrationError, match="nothing can stop"):
        engine.step(preemptible=True)(known.function)


async def test_a_result_that_does_not_fit_its_annotation_is_said(engine: Engine):
    @engine.workflow
    async def flow():
        async def wrong() -> int:
            return "no number"

        await perdure.run_step("wrong", wrong)

    assert failed(await engine.execute(engine.run_of(flow))).error.code == EncodingFailed.code
