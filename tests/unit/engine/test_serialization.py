"""Runs whose values a serializer or codec of the application writes; portable ones; who chooses; who cannot read."""

import asyncio
import json
import secrets
from typing import Any

import perdure
import pytest
from perdure.declarative.run import register as register_declared
from perdure.engine.registry import Registry
from perdure.errors import EncodingFailed, InvalidArgument, OwnershipLost, PerdureError, RegistrationError
from perdure.model.calls import RunOutcome, Start
from perdure.model.outcome import Failed, Mismatch
from perdure.model.rows import DECLARED_WORKFLOW
from perdure.model.serialization import Serialization
from perdure.model.states import RunStatus, StepStatus
from perdure.store.clients import ExistingRun

from tests.support.engine import Engine, Held, failed, output_of, statuses, until
from tests.support.memorylog import MemoryRun


class Sealed:
    """A serializer that writes the same value otherwise each time, as encryption does."""

    name = "sealed"

    def serialize(self, value: Any) -> str:
        return f"{secrets.token_hex(4)}.{json.dumps(value).encode().hex()}"

    def deserialize(self, text: str) -> Any:
        return json.loads(bytes.fromhex(text.partition(".")[2]))


class Outside:
    """A codec that talks to something outside, which is away for some calls."""

    name = "outside"
    blocking = True

    def __init__(self) -> None:
        self.away = 0
        self.kept: dict[str, str] = {}

    def encode(self, text: str) -> str | None:
        self._ask()
        self.kept[str(len(self.kept))] = text
        return str(len(self.kept) - 1)

    def decode(self, text: str) -> str:
        self._ask()
        return self.kept[text]

    def _ask(self) -> None:
        if self.away:
            self.away -= 1
            raise Away("it is away")


class Away(PerdureError):
    code = "PRD-000"
    retryable = True


SEALED = Sealed()


def seal(value: Any) -> str:
    return f"!sealed:{SEALED.serialize(value)}"


def unseal(text: str | None) -> Any:
    assert text is not None
    assert text.startswith("!sealed:"), text
    return SEALED.deserialize(text.removeprefix("!sealed:"))


@pytest.fixture
def sealed(engine: Engine) -> Engine:
    engine.registry.serializers.add(SEALED)
    engine.registry.serializers.use("sealed")
    return engine


@pytest.fixture
def outside(engine: Engine) -> Outside:
    codec = Outside()
    engine.registry.serializers.add_codec(codec)
    engine.registry.serializers.use("", ["outside"])
    return codec


def adding(engine: Engine) -> Any:
    @engine.step(name="add")
    async def add(a: int, b: int) -> int:
        engine.bodies.append((a, b))
        return a + b

    @engine.workflow
    async def flow(n: int) -> int:
        first: int = await add(n, 1)
        second: int = await add(first, 2)
        await perdure.sleep(100 if len(engine.bodies) < 3 else 0)
        return second

    return flow


# -- a run under a serializer


async def test_all_values_of_a_run_are_written_by_the_configured_serializer(sealed: Engine):
    @sealed.step(name="add")
    async def add(a: int, b: int) -> int:
        return a + b

    @sealed.workflow
    async def flow(n: int) -> int:
        return await add(n, 1)

    run = sealed.run_of(flow, 3)
    ending = await sealed.execute(run)
    assert unseal(ending.output) == 4
    assert unseal(run.rows[0].input) == [3, 1]
    assert unseal(run.rows[0].output) == 4


async def test_a_replay_reads_what_was_written_and_runs_no_step_again(sealed: Engine):
    run = sealed.run_of(adding(sealed), 3)
    await sealed.execute(run)
    await sealed.execute(run)
    assert sealed.bodies == [(3, 1), (4, 2)]
    assert statuses(run)[:2] == [StepStatus.SUCCEEDED] * 2


async def test_the_input_of_a_run_is_read_by_its_name(sealed: Engine):
    @sealed.workflow
    async def flow(n: int, when: bytes) -> list[Any]:
        return [n, when]

    run = MemoryRun("flow", seal([5, "_w=="]))
    assert unseal((await sealed.execute(run)).output) == [5, "_w=="]


async def test_a_call_with_another_argument_still_is_a_mismatch(sealed: Engine):
    given = [1]

    @sealed.step(name="work")
    async def work(n: int) -> None: ...

    @sealed.workflow
    async def flow() -> None:
        await work(given[0])
        await perdure.sleep(100)

    run = sealed.run_of(flow)
    await sealed.execute(run)
    given[0] = 2
    ending = await sealed.execute(run)
    assert isinstance(ending, Mismatch)
    assert "[2]" in ending.error.message
    assert "[1]" in ending.error.message


async def test_what_was_recorded_as_json_goes_on_under_a_serializer_and_the_other_way(engine: Engine):
    flow = adding(engine)
    engine.registry.serializers.add(SEALED)
    run = engine.run_of(flow, 3)
    await engine.execute(run)
    engine.registry.serializers.use("sealed")
    await engine.execute(run)
    engine.registry.serializers.use()
    await engine.execute(run)
    assert engine.bodies == [(3, 1), (4, 2)]


async def test_what_a_serializer_refuses_takes_no_index(engine: Engine):
    class Picky(Sealed):
        name = "picky"

        def serialize(self, value: Any) -> str:
            if value == ["bad"]:
                raise ValueError("no")
            return super().serialize(value)

    engine.registry.serializers.add(Picky())
    engine.registry.serializers.use("picky")

    @engine.step(name="work")
    async def work(n: str) -> str:
        return n

    @engine.workflow
    async def flow() -> int | None:
        with pytest.raises(EncodingFailed, match="picky"):
            work("bad")
        call = work("good")
        await call
        return call.step_id

    ending = await engine.execute(engine.run_of(flow))
    assert ending.output.startswith("!picky:")
    assert Picky().deserialize(ending.output.removeprefix("!picky:")) == 0


async def test_a_result_that_a_serializer_refuses_is_a_failure_of_its_step(engine: Engine):
    class Picky(Sealed):
        name = "picky"

        def serialize(self, value: Any) -> str:
            if value == "bad":
                raise ValueError("no")
            return super().serialize(value)

    engine.registry.serializers.add(Picky())
    engine.registry.serializers.use("picky")

    @engine.step(name="work", max_attempts=3)
    async def work() -> str:
        engine.bodies.append(1)
        return "bad"

    @engine.workflow
    async def flow() -> None:
        await work()

    ending = failed(await engine.execute(engine.run_of(flow)))
    assert ending.error.type == "perdure.errors.EncodingFailed"
    assert engine.bodies == [1]


async def test_declared_steps_are_written_as_the_run_is(sealed: Engine):
    @sealed.step(name="charge")
    async def charge(amount: int) -> int:
        return amount * 2

    register_declared(sealed.registry)
    definition = json.dumps({"steps": [{"name": "pay", "task": "charge", "arguments": {"amount": 5}}]})
    run = MemoryRun(DECLARED_WORKFLOW, "{}", definition)
    ending = await sealed.execute(run)
    assert unseal(ending.output) == {"pay": 10}
    assert unseal(run.rows[0].input) == {"amount": 5}
    await sealed.execute(run)


async def test_the_input_of_a_losing_branch_stays_as_it_was_written(sealed: Engine):
    held = Held(sealed)

    @sealed.step(name="quick")
    async def quick() -> int:
        await until(lambda: held.noted == ["begin secret"])
        return 1

    @sealed.workflow
    async def flow() -> int:
        return (await perdure.select(held.step("secret"), quick())).index

    run = sealed.run_of(flow)
    await sealed.execute(run)
    assert run.rows[0].status is StepStatus.DROPPED
    assert unseal(run.rows[0].input) == ["secret"]


# -- what is handed to others


def reaching(engine: Engine, **options: Any) -> Any:
    @engine.workflow
    async def flow() -> None:
        await perdure.send("them", {"n": 1}, "t", **options)
        await perdure.set_event("e", {"n": 2}, **options)
        await perdure.write_stream("s", {"n": 3}, **options)

    return flow


def handed(run: MemoryRun) -> list[str]:
    world = run.world
    return [world.inboxes["them", "t"][0], world.events[run.id, "e"], world.streams[run.id, "s"][0]]


def at(engine: Engine, flow: Any, **options: Any) -> MemoryRun:
    run = engine.run_of(flow, **options)
    run.world.runs["them"] = ExistingRun("them", "default", "x", "[]")
    return run


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


def choosing(engine: Engine, registered: Any = None, **started: Any) -> Any:
    engine.registry.workflows.clear()

    @perdure.workflow(name="child", registry=engine.registry, serialization=registered)
    async def child(n: int) -> None: ...

    @engine.workflow
    async def flow() -> None:
        await child.options(**started).start(7)

    return flow


async def started(engine: Engine, flow: Any, **options: Any) -> tuple[str, Serialization | None]:
    claim = engine.claim(engine.run_of(flow, **options))
    await claim.ending()
    [start] = [call for call in claim.log.calls if isinstance(call, Start)]
    return start.input, start.options.choice


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


# -- who cannot read


async def test_a_run_whose_input_cannot_be_read_here_is_kept_and_nothing_of_it_runs(engine: Engine):
    @engine.workflow
    async def flow(n: int) -> None:
        engine.bodies.append(n)

    run = MemoryRun("flow", seal([5]))
    ending = await engine.execute(run)
    assert isinstance(ending, Mismatch)
    assert ending.error.code == "PRD-407"
    assert "sealed" in ending.error.message
    engine.registry.serializers.add(SEALED)
    output_of(await engine.execute(run))
    assert engine.bodies == [5]


async def test_a_run_whose_history_cannot_be_read_here_is_kept(sealed: Engine):
    run = sealed.run_of(adding(sealed), 3)
    await sealed.execute(run)
    known, sealed.registry.serializers = sealed.registry.serializers, type(sealed.registry.serializers)()
    ending = await sealed.execute(run)
    assert isinstance(ending, Mismatch)
    assert (ending.error.code, ending.error.step) == ("PRD-407", "add")
    sealed.registry.serializers = known
    await sealed.execute(run)
    assert sealed.bodies == [(3, 1), (4, 2)]


@pytest.mark.parametrize("text", ["!sealed:00", "!nobody:00"])
async def test_a_message_that_cannot_be_read_here_is_kept_with_its_run(sealed: Engine, text: str):
    @sealed.workflow
    async def flow() -> Any:
        try:
            return await perdure.recv("t", 0)
        except Exception:
            return "caught"

    run = sealed.run_of(flow)
    run.world.inboxes[run.id, "t"] = [text]
    assert isinstance(await sealed.execute(run), Mismatch)
    assert run.rows[0].output == text
    assert isinstance(await sealed.execute(run), Mismatch)


async def test_a_step_that_looks_at_what_cannot_be_read_here_is_no_failure(sealed: Engine):
    @sealed.step(name="look")
    async def look() -> Any:
        return await perdure.get_event("other", "e", 0)

    @sealed.workflow
    async def flow() -> Any:
        return await look()

    run = sealed.run_of(flow)
    run.world.events["other", "e"] = "!nobody:1"
    assert isinstance(await sealed.execute(run), Mismatch)


# -- codecs that talk to something outside


async def test_what_is_outside_may_be_away_for_a_while(engine: Engine, outside: Outside):
    run = engine.run_of(adding(engine), 3)
    outside.away = 1
    await engine.execute(run)
    outside.away = 1
    await engine.execute(run)
    assert engine.bodies == [(3, 1), (4, 2)]
    assert run.rows[0].input.startswith("!outside:")
    assert (run.rows[0].output or "").startswith("!outside:")


async def test_messages_and_starts_go_through_a_codec_outside(engine: Engine, outside: Outside):
    run = at(engine, reaching(engine))
    await engine.execute(run)
    assert [outside.decode(text.removeprefix("!outside:")) for text in handed(run)] == ['{"n":1}', '{"n":2}', '{"n":3}']
    text, _ = await started(engine, choosing(engine), id="run-2")
    assert outside.decode(text.removeprefix("!outside:")) == "[7]"


async def test_a_run_that_is_lost_does_not_wait_for_what_is_outside(engine: Engine, outside: Outside):
    @engine.step(name="work")
    async def work() -> None: ...

    @engine.workflow
    async def flow() -> None:
        await work()

    outside.away = 10**6
    claim = engine.claim(engine.run_of(flow))
    await until(lambda: outside.away < 10**6)
    claim.interrupt(OwnershipLost("gone"))
    await claim.ending()
    assert claim.log.writes == []


async def test_an_error_of_a_codec_that_will_not_pass_fails_the_call(engine: Engine):
    class Broken(Outside):
        def encode(self, text: str) -> str | None:
            raise ValueError("full")

    engine.registry.serializers.add_codec(Broken())
    engine.registry.serializers.use("", ["outside"])

    @engine.step(name="work")
    async def work() -> None: ...

    @engine.workflow
    async def flow() -> None:
        await asyncio.sleep(0)
        await work()

    ending = await engine.execute(engine.run_of(flow))
    assert isinstance(ending, Failed)
    assert "codec outside" in ending.error.message
