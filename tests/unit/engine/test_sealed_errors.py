"""What exceptions carry is as secret as the values of their run: it goes through the codecs of the run."""

import json
from base64 import b64encode
from dataclasses import dataclass, replace
from typing import Any

import perdure
import pytest
from perdure import MaxStepRetriesExceeded
from perdure.codecs import Encryption
from perdure.engine.encoding import LARGE
from perdure.engine.failures import NONE, describe, rebuild_run
from perdure.engine.sealing import opened, sealed
from perdure.engine.serialization import Serializers
from perdure.errors import UnknownSerialization
from perdure.model.calls import RunOutcome
from perdure.model.outcome import ErrorRecord, Failed, Mismatch
from perdure.model.states import RunStatus

from tests.support.engine import Engine

KEY = {"k": b"k" * 32}


@dataclass
class Declined(Exception):
    card: str

    def __str__(self) -> str:
        return "the card was declined"


@pytest.fixture
def secret(engine: Engine) -> Engine:
    use(engine, Encryption(KEY))
    return engine


def use(engine: Engine, codec: Any) -> None:
    engine.registry.serializers = Serializers()
    engine.registry.serializers.add_codec(codec)
    engine.registry.serializers.use(codecs=[codec.name])


def rows(run: Any) -> str:
    return " ".join(f"{row.input} {row.output} {row.error} {row.attempt_errors}" for row in run.rows.values())


async def test_a_body_catches_what_a_step_raised_and_nothing_of_it_can_be_read_in_the_rows(secret: Engine) -> None:
    @secret.step
    async def charge() -> None:
        raise Declined("4000 1234")

    @secret.workflow
    async def flow() -> bool:
        try:
            await charge()
        except Declined as error:
            return error.card == "4000 1234"
        return False

    run = secret.run_of(flow)
    for _ in range(2):
        assert secret.registry.serializers.read((await secret.execute(run)).output, "") == "true"
    assert "4000" not in rows(run)
    assert ErrorRecord.from_json(run.rows[0].error).message == "the card was declined"


async def test_all_attempts_of_a_step_come_back_and_are_sealed_too(secret: Engine) -> None:
    @secret.step(max_attempts=2, interval=0)
    async def charge() -> None:
        raise Declined("4000 1234")

    @secret.workflow
    async def flow() -> list[str]:
        try:
            await charge()
        except MaxStepRetriesExceeded as error:
            return [each.card for each in error.errors]
        return []

    run = secret.run_of(flow)
    for _ in range(2):
        output = secret.registry.serializers.read((await secret.execute(run)).output, "")
        assert json.loads(output) == ["4000 1234"] * 2
    assert "4000" not in rows(run)


async def test_a_failed_run_is_sealed_and_opened_by_who_has_the_key(secret: Engine) -> None:
    @secret.workflow
    async def flow() -> None:
        raise MaxStepRetriesExceeded("all failed", (Declined("4000 1"), Declined("4000 2"))) from None

    ending = await secret.execute(secret.run_of(flow))
    assert isinstance(ending, Failed)
    assert "4000" not in ending.error.to_json()
    record = ErrorRecord.from_json(ending.error.to_json())
    error = rebuild_run(opened(record, secret.registry.serializers), "r")
    assert isinstance(error, MaxStepRetriesExceeded)
    assert [each.card for each in error.errors] == ["4000 1", "4000 2"]


async def test_a_parent_raises_what_its_child_carried_and_keeps_it_sealed(secret: Engine) -> None:
    @secret.workflow
    async def parent() -> bool:
        try:
            await perdure.handle("child").result()
        except Declined as error:
            return error.card == "4000 1234"
        return False

    run = secret.run_of(parent)
    error = sealed(describe(Declined("4000 1234")), secret.registry.serializers.encoding(None)).to_json()
    run.world.outcomes["child"] = RunOutcome(RunStatus.FAILED, error=error)
    for _ in range(2):
        assert secret.registry.serializers.read((await secret.execute(run)).output, "") == "true"
    assert "4000" not in rows(run)


async def test_a_run_whose_error_cannot_be_read_here_is_kept(secret: Engine) -> None:
    @secret.step
    async def charge() -> None:
        raise Declined("4000 1234")

    @secret.workflow
    async def flow() -> None:
        await charge()

    run = secret.run_of(flow)
    await secret.execute(run)
    run.rows[0] = replace(run.rows[0], input="[]")
    use(secret, Encryption({"other": b"o" * 32}))
    ending = await secret.execute(run)
    assert isinstance(ending, Mismatch)
    assert ending.error.code == "PRD-407"


def test_what_was_changed_or_has_another_key_is_said_and_of_attempts_left_out() -> None:
    codec, other = Serializers(), Serializers()
    codec.add_codec(Encryption(KEY))
    codec.use(codecs=["aes-gcm"])
    other.add_codec(Encryption({"other": b"o" * 32}))
    record = sealed(describe(Declined("4000")), codec.encoding(None))
    with pytest.raises(UnknownSerialization):
        opened(record, other)
    behind = ErrorRecord("E", "m", attempts=(record,))
    assert [each.message for each in opened(behind, other).attempts] == ["the card was declined"]
    assert opened(record, codec) == describe(Declined("4000"))
    assert sealed(record, codec.encoding(None)) == record


def test_without_codecs_a_record_is_stored_as_ever() -> None:
    record = describe(Declined("4000"))
    assert sealed(record, Serializers().encoding(None)) is record


def test_a_message_that_looks_sealed_is_a_message() -> None:
    text = 'it said "raised": "!aes-gcm:k:' + b64encode(b"x").decode()
    record = ErrorRecord.from_json(describe(ValueError(text)).to_json())
    assert str(rebuild_run(opened(record, Serializers()), "r")) == text
    assert NONE.errors == ()


def test_however_much_an_error_carries_it_is_stored_encrypted() -> None:
    serializers = Serializers().with_own(None, [Encryption(KEY)])
    record = ErrorRecord("Declined", "the card was declined", raised="4000 1234 " * (LARGE // 5))
    stored = sealed(record, serializers.encoding(None))
    assert stored.raised.startswith("!aes-gcm:")
    assert "4000" not in stored.raised
