"""Declared steps run by the engine: order, results, failures, replay."""

import asyncio
import json
from decimal import Decimal

import pytest
from perdure import current
from perdure.declarative import register
from perdure.errors import OwnershipLost, ReleaseRequested
from perdure.model.outcome import Failed, Lost, Mismatch, Parked, Released, Succeeded
from perdure.model.rows import DECLARED_WORKFLOW
from perdure.model.states import StepStatus
from pydantic import BaseModel

from tests.support.engine import Engine, output_of, until
from tests.support.memorylog import MemoryRun

DONE, FAILED, RETRYING = StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.RETRYING


class Parcel(BaseModel):
    label: str
    price: Decimal


@pytest.fixture(autouse=True)
def tasks(engine: Engine) -> dict[str, asyncio.Event]:
    """`note` writes down its name; `gate` waits until the test opens it by its name; `fail` fails."""
    register(engine.registry)
    gates: dict[str, asyncio.Event] = {}

    @engine.step(name="note")
    async def note(value: str = "") -> str:
        engine.bodies.append(current().step.name)
        return f"noted {value}"

    @engine.step(name="gate")
    async def gate() -> None:
        engine.bodies.append(current().step.name)
        await gates.setdefault(current().step.name, asyncio.Event()).wait()

    @engine.step(name="fail")
    async def fail(message: str) -> None:
        engine.bodies.append(current().step.name)
        raise ValueError(message)

    @engine.step(name="pack")
    def pack(parcel: Parcel, *, fragile: bool) -> Parcel:
        assert isinstance(parcel.price, Decimal)
        return Parcel(label=f"{parcel.label}{'!' if fragile else ''}", price=parcel.price)

    return gates


def declared(*steps: dict, **options) -> MemoryRun:
    definition = json.dumps({"steps": [{"task": "note", **step} for step in steps]})
    return MemoryRun(DECLARED_WORKFLOW, definition=definition, **options)


async def test_steps_run_from_top_to_bottom_and_the_output_is_their_results(engine: Engine):
    run = declared({"name": "b", "with": {"value": "x"}}, {"name": "a"})
    assert output_of(await engine.execute(run)) == {"b": "noted x", "a": "noted "}
    assert engine.bodies == ["b", "a"]
    assert [(index, row.name, row.input) for index, row in run.rows.items()] == [
        (0, "b", '{"value":"x"}'),
        (1, "a", "{}"),
    ]


async def test_literal_arguments_are_decoded_by_the_annotations_of_the_task(engine: Engine):
    run = declared(
        {"name": "pack", "task": "pack", "with": {"parcel": {"label": "p", "price": "1.10"}, "fragile": True}}
    )
    assert output_of(await engine.execute(run)) == {"pack": {"label": "p!", "price": "1.10"}}


async def test_an_input_beside_declared_steps_is_no_error(engine: Engine):
    assert isinstance(await engine.execute(declared({"name": "a"}, input='{"any": 1}')), Succeeded)


async def test_a_step_runs_as_soon_as_its_needs_are_done(engine: Engine, tasks):
    run = declared(
        {"name": "slow", "task": "gate", "needs": []},
        {"name": "quick", "task": "gate", "needs": []},
        {"name": "afterQuick", "needs": ["quick"]},
        {"name": "afterBoth", "needs": ["slow", "quick"]},
    )
    claim = engine.claim(run)
    await until(lambda: len(engine.bodies) == 2)
    tasks["quick"].set()
    await until(lambda: "afterQuick" in engine.bodies)
    assert "afterBoth" not in engine.bodies
    tasks["slow"].set()
    await claim.ending()
    assert engine.bodies == ["slow", "quick", "afterQuick", "afterBoth"]


async def test_a_replay_returns_what_is_recorded_whatever_order_steps_ended_in(engine: Engine, tasks):
    run = declared(
        {"name": "slow", "task": "gate", "needs": []},
        {"name": "quick", "needs": []},
        {"name": "next", "needs": ["quick"]},
        {"name": "last", "needs": ["slow", "next"]},
    )

    def dies_before_the_last(write):
        if write.name == "last":
            raise OwnershipLost

    claim = engine.claim(run, dies_before_the_last)
    await until(lambda: engine.bodies == ["slow", "quick", "next"])
    tasks["slow"].set()
    assert await claim.ending() == Lost()
    claim.log.commit()
    assert output_of(await engine.execute(run)) == {
        "slow": None,
        "quick": "noted ",
        "next": "noted ",
        "last": "noted ",
    }
    assert engine.bodies == ["slow", "quick", "next", "last"]


async def test_a_failed_step_fails_the_run_after_the_steps_in_progress_and_is_named(engine: Engine, tasks):
    run = declared(
        {"name": "going", "task": "gate", "needs": []},
        {"name": "bad", "task": "fail", "with": {"message": "no stock"}, "needs": []},
        {"name": "afterGoing", "needs": ["going"]},
        {"name": "afterBad", "needs": ["bad"]},
    )
    claim = engine.claim(run)
    await until(lambda: claim.execution.stopping)
    assert not claim.done
    tasks["going"].set()
    ending = await claim.ending()
    assert isinstance(ending, Failed)
    assert (ending.error.type, ending.error.message, ending.error.step) == ("ValueError", "no stock", "bad")
    claim.log.commit()
    assert {row.name: row.status for row in run.rows.values()} == {"going": DONE, "bad": FAILED}
    assert isinstance(await engine.execute(run), Failed)
    assert engine.bodies == ["going", "bad"]


async def test_of_several_failures_the_first_in_order_counts(engine: Engine):
    run = declared(
        {"name": "one", "task": "fail", "with": {"message": "1"}, "needs": []},
        {"name": "two", "task": "fail", "with": {"message": "2"}, "needs": []},
    )
    for _ in range(2):
        ending = await engine.execute(run)
        assert ending.error.step == "one"


async def test_arguments_that_do_not_fit_fail_their_step_and_name_the_parameter(engine: Engine):
    for arguments, says in (
        ({"value": 7}, "'value' of step note is not str"),
        ({"valeu": "x"}, "no parameter 'valeu'; it takes value"),
    ):
        run = declared({"name": "greet", "with": arguments, "retry": {"maxAttempts": 3}})
        ending = await engine.execute(run)
        assert isinstance(ending, Failed)
        assert (ending.error.code, ending.error.step) == ("PRD-402", "greet")
        assert says in ending.error.message
        assert run.rows[0].status is FAILED


async def test_declared_retry_and_timeout_take_the_place_of_the_registered_ones(engine: Engine):
    run = declared(
        {
            "name": "bad",
            "task": "fail",
            "with": {"message": "x"},
            "retry": {"maxAttempts": 2, "backoff": {"initial": "1h"}},
        }
    )
    ending = await engine.execute(run)
    assert isinstance(ending, Parked)
    assert ending.waiting_for.name == "bad"
    run.elapsed = 3601
    ending = await engine.execute(run)
    assert ending.error.code == "PRD-405"
    slow = declared({"name": "slow", "task": "gate", "attemptTimeout": "1ms"})
    assert (await engine.execute(slow)).error.code == "PRD-404"


async def test_a_release_lets_steps_in_progress_finish_and_starts_no_other(engine: Engine, tasks):
    run = declared(
        {"name": "one", "task": "gate", "needs": []},
        {"name": "two", "task": "gate", "needs": []},
        {"name": "three"},
    )
    claim = engine.claim(run)
    await until(lambda: len(engine.bodies) == 2)
    claim.interrupt(ReleaseRequested("drain"))
    for gate in tasks.values():
        gate.set()
    assert await claim.ending() == Released("drain")
    claim.log.commit()
    assert [row.status for row in run.rows.values()] == [DONE, DONE]


async def test_a_changed_definition_is_a_mismatch(engine: Engine):
    run = declared({"name": "a"}, {"name": "b"})
    await engine.execute(run)
    run.definition = declared({"name": "b"}, {"name": "a"}).definition
    ending = await engine.execute(run)
    assert isinstance(ending, Mismatch)
    run.definition = declared({"name": "a", "with": {"value": "other"}}, {"name": "b"}).definition
    assert isinstance(await engine.execute(run), Mismatch)


async def test_a_broken_definition_fails_the_run_readably(engine: Engine):
    ending = await engine.execute(declared({"name": "a", "task": "nobody"}))
    assert isinstance(ending, Failed)
    assert ending.error.code == "PRD-201"


async def test_a_hundred_steps_side_by_side_and_then_one(engine: Engine):
    steps = [{"name": f"s{n}", "needs": []} for n in range(100)]
    last = {"name": "last", "needs": [f"s{n}" for n in range(80, 100)]}
    assert len(output_of(await engine.execute(declared(*steps, last)))) == 101
    assert engine.bodies[-1] == "last"


def test_declared_steps_are_announced_in_the_manifest(engine: Engine):
    assert f"workflow:{DECLARED_WORKFLOW}" in engine.registry.manifest()
