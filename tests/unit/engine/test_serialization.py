"""Runs whose values a serializer or a codec of the application writes; who cannot read them."""

import asyncio
import json
from typing import Any

import perdure
import pytest
from perdure.declarative.run import register as register_declared
from perdure.errors import EncodingFailed, OwnershipLost
from perdure.model.outcome import Failed, Mismatch
from perdure.model.rows import DECLARED_WORKFLOW
from perdure.model.states import StepStatus

from tests.support.engine import Engine, Held, failed, output_of, statuses, until
from tests.support.memorylog import MemoryRun
from tests.support.sealing import SEALED, Outside, Sealed, adding, at, choosing, handed, reaching, seal, started, unseal

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
