"""How values are written: who chooses, what is handed to others, and what is portable."""

from typing import Any

import perdure
import pytest
from perdure.engine.registry import Registry
from perdure.errors import EncodingFailed, InvalidArgument, RegistrationError
from perdure.model.calls import RunOutcome
from perdure.model.serialization import Serialization
from perdure.model.states import RunStatus, StepStatus
from perdure.store.clients import ExistingRun

from tests.support.engine import Engine, failed, output_of, statuses
from tests.support.sealing import at, choosing, handed, reaching, seal, started, unseal

# -- what is handed to others


async def test_messages_events_and_streams_are_written_as_the_run_is(sealed: Engine):
    run = at(sealed, reaching(sealed))
    await sealed.execute(run)
    assert [unseal(text) for text in handed(run)] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert unseal(run.rows[0].input) == ["them", "t", None, {"n": 1}]
    assert unseal(run.rows[1].input) == ["e", {"n": 2}]


@pytest.mark.parametrize("choice", ["portable", Serialization.NATIVE])
async def test_each_of_them_may_be_written_otherwise(sealed: Engine, choice: Any):
    run = at(sealed, reaching(sealed, serialization=choice))
    await sealed.execute(run)
    assert handed(run) == ['{"n":1}', '{"n":2}', '{"n":3}']
    assert unseal(run.rows[0].input) == ["them", "t", None, {"n": 1}]


async def test_default_is_as_the_run_is(sealed: Engine):
    run = at(sealed, reaching(sealed, serialization="default"))
    await sealed.execute(run)
    assert [unseal(text) for text in handed(run)] == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.parametrize(
    "make",
    [
        lambda choice: perdure.send("them", 1, serialization=choice),
        lambda choice: perdure.set_event("e", 1, serialization=choice),
        lambda choice: perdure.write_stream("s", 1, serialization=choice),
    ],
)
async def test_a_choice_that_is_none_is_refused(engine: Engine, make: Any):
    @engine.workflow
    async def flow() -> None:
        with pytest.raises(InvalidArgument, match="default, portable, native"):
            make("pickle")

    output_of(await engine.execute(engine.run_of(flow)))


async def test_in_a_step_they_are_written_as_the_run_is(sealed: Engine):
    @sealed.step(name="tell")
    async def tell() -> None:
        await perdure.send("them", {"n": 1}, "t")
        await perdure.write_stream("s", {"n": 3}, serialization="native")

    @sealed.workflow
    async def flow() -> None:
        await tell()

    run = at(sealed, flow)
    await sealed.execute(run)
    assert unseal(run.world.inboxes["them", "t"][0]) == {"n": 1}
    assert run.world.streams[run.id, "s"] == ['{"n":3}']


async def test_what_others_have_sent_is_read_by_its_name(sealed: Engine):
    @sealed.workflow
    async def flow() -> list[Any]:
        return [
            await perdure.recv("t", 0),
            await perdure.get_event("other", "e", 0),
            await perdure.read_stream("other", "s", 0, 0),
            await perdure.handle("other").result(),
        ]

    run = sealed.run_of(flow)
    run.world.inboxes[run.id, "t"] = [seal({"n": 1})]
    run.world.events["other", "e"] = seal([2])
    run.world.streams["other", "s"] = [seal("three")]
    run.world.outcomes["other"] = RunOutcome(RunStatus.SUCCEEDED, seal(4), workflow="x")
    first = await sealed.execute(run)
    assert unseal(first.output) == [{"n": 1}, [2], "three", 4]
    assert unseal((await sealed.execute(run)).output) == [{"n": 1}, [2], "three", 4]


async def test_in_a_step_what_others_have_published_is_read_by_its_name(sealed: Engine):
    @sealed.step(name="look")
    async def look() -> list[Any]:
        return [await perdure.get_event("other", "e", 0), await perdure.read_stream("other", "s", 0, 0)]

    @sealed.workflow
    async def flow() -> list[Any]:
        return await look()

    run = sealed.run_of(flow)
    run.world.events["other", "e"] = seal([2])
    run.world.streams["other", "s"] = [seal("three")]
    assert unseal((await sealed.execute(run)).output) == [[2], "three"]


# -- who chooses


async def test_a_start_chooses_before_its_workflow_and_that_before_the_run_that_starts_it(sealed: Engine):
    portable, native = Serialization.PORTABLE, Serialization.NATIVE
    text, choice = await started(sealed, choosing(sealed))
    assert (unseal(text), choice) == ([7], None)
    assert await started(sealed, choosing(sealed), serialization=native) == ("[7]", native)
    assert await started(sealed, choosing(sealed, "portable"), serialization=native) == ("[7]", portable)
    assert await started(sealed, choosing(sealed, "portable", serialization="native")) == ("[7]", native)


async def test_a_run_whose_start_says_nothing_is_written_as_its_workflow_is_registered(sealed: Engine):
    @perdure.workflow(name="plainly", registry=sealed.registry, serialization="native")
    async def plainly() -> int:
        await perdure.set_event("e", 1)
        return 2

    run = sealed.run_of(plainly)
    assert (await sealed.execute(run)).output == "2"
    assert run.world.events[run.id, "e"] == "1"


async def test_the_start_of_a_run_is_recorded_as_the_run_is_whatever_the_child_is(sealed: Engine):
    run = sealed.run_of(choosing(sealed, "native"))
    await sealed.execute(run)
    assert unseal(run.rows[0].input) == ["child", [7], {}]
    assert run.rows[0].output == '"run-1-0"'


async def test_a_child_that_is_there_is_compared_by_what_its_input_says(sealed: Engine):
    flow = choosing(sealed, id="mine")
    run = sealed.run_of(flow)
    run.world.runs["mine"] = ExistingRun("mine", "default", "child", seal([7]))
    await sealed.execute(run)
    assert statuses(run) == [StepStatus.SUCCEEDED]
    other = sealed.run_of(flow, id="run-2")
    other.world.runs["mine"] = ExistingRun("mine", "default", "child", seal([8]))
    assert failed(await sealed.execute(other)).error.type == "perdure.errors.ConflictingWorkflow"


def test_a_workflow_cannot_be_registered_with_a_choice_that_is_none():
    with pytest.raises(RegistrationError, match="default, portable, native"):

        @perdure.workflow(name="x", registry=Registry(), serialization="pickle")
        async def flow() -> None: ...


def test_a_start_cannot_make_a_choice_that_is_none():
    @perdure.workflow(name="x", registry=Registry())
    async def flow() -> None: ...

    with pytest.raises(InvalidArgument, match="default, portable, native"):
        flow.options(serialization="pickle")


async def test_a_debounced_run_is_written_as_it_chooses(sealed: Engine):
    @perdure.workflow(name="index", registry=sealed.registry)
    async def index(n: int) -> None: ...

    @sealed.workflow
    async def flow() -> None:
        await perdure.debounce(index.prepare(1), "k", 5)
        await perdure.debounce(index.options(serialization="native").prepare(2), "k", 5)

    run = sealed.run_of(flow)
    await sealed.execute(run)
    first, second = (each.run for each in run.world.debounced)
    assert (unseal(first.input), first.serialization) == ([1], None)
    assert (second.input, second.serialization) == ("[2]", Serialization.NATIVE)
    assert unseal(run.rows[0].input)[:3] == ["index", [1], "k"]


# -- portable


async def test_a_portable_run_writes_json_that_others_read_as_it_is(sealed: Engine):
    @sealed.step(name="work")
    async def work(n: int) -> dict[str, int]:
        return {"n": n}

    @sealed.workflow
    async def flow() -> dict[str, int]:
        return await work(1)

    run = sealed.run_of(flow, serialization=Serialization.PORTABLE)
    assert (await sealed.execute(run)).output == '{"n":1}'
    assert (run.rows[0].input, run.rows[0].output) == ("[1]", '{"n":1}')


async def test_in_a_portable_run_a_value_that_is_not_portable_is_refused_where_it_is_given(engine: Engine):
    @engine.step(name="work")
    async def work(given: Any = None) -> dict[int, int]:
        return {1: 1}

    @engine.workflow
    async def flow() -> None:
        for make in (
            lambda: work({1: 2}),
            lambda: perdure.send("them", {1: 2}),
            lambda: perdure.set_event("e", 2**60),
            lambda: perdure.write_stream("s", [{None: 1}]),
        ):
            with pytest.raises(EncodingFailed, match="portable"):
                make()
        with pytest.raises(EncodingFailed, match="portable"):
            await work()

    output_of(await engine.execute(engine.run_of(flow, serialization=Serialization.PORTABLE)))


async def test_the_result_of_a_portable_run_is_portable(engine: Engine):
    @engine.workflow
    async def flow() -> dict[int, int]:
        return {1: 1}

    ending = failed(await engine.execute(engine.run_of(flow, serialization=Serialization.PORTABLE)))
    assert ending.error.type == "perdure.errors.EncodingFailed"


async def test_a_portable_run_may_send_a_value_that_is_not_when_it_says_so(engine: Engine):
    @engine.workflow
    async def flow() -> None:
        await perdure.send("them", {1: 2}, serialization="native")

    run = at(engine, flow, serialization=Serialization.PORTABLE)
    output_of(await engine.execute(run))
    assert run.world.inboxes["them", ""] == ['{"1":2}']


def test_the_input_of_a_portable_workflow_is_refused_where_it_is_given():
    @perdure.workflow(name="x", registry=Registry(), serialization="portable")
    async def flow(given: Any) -> None: ...

    with pytest.raises(EncodingFailed, match="portable"):
        flow.prepare({1: 2})
    assert flow.options(serialization="native").prepare({1: 2}).input == '[{"1":2}]'
