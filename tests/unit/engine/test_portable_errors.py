"""Errors as other languages write and read them: name, message, code, data."""

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import perdure
import pytest
from perdure import MaxStepRetriesExceeded, Portable
from perdure.engine import errortypes
from perdure.engine.failures import NONE, describe, portable, rebuild, rebuild_run
from perdure.model.outcome import ErrorRecord, Failed
from perdure.model.serialization import Serialization
from perdure.resources.projection_text import read_error

from tests.support.engine import Engine


@pytest.fixture(autouse=True)
def _own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errortypes, "_known", dict(errortypes._known))
    monkeypatch.setattr(errortypes, "_names", dict(errortypes._names))


class Declined(Exception):
    code = 17
    cents: int

    def __init__(self, order: str, cents: int) -> None:
        super().__init__(f"order {order} was declined")
        self.order = order
        self.cents = cents


@dataclass
class Short(Exception):
    missing: Decimal
    item: str = "tea"


def written(**fields: Any) -> ErrorRecord:
    return ErrorRecord.from_json(json.dumps(fields))


def stored(error: Exception) -> dict[str, Any]:
    return json.loads(portable(describe(error)).to_json())


def test_an_error_of_another_language_has_its_name_message_code_and_data() -> None:
    record = written(name="NoStock", message="no tea", code="E7", data={"item": "tea", "left": [0]})
    for error in (rebuild(record, NONE, "s"), rebuild_run(record, "r")):
        assert isinstance(error, Portable)
        assert (error.name, error.message, error.code, error.data) == (
            "NoStock",
            "no tea",
            "E7",
            {"item": "tea", "left": [0]},
        )
        assert str(error) == "PRD-408: NoStock: no tea"


@pytest.mark.parametrize("code", [None, 0, 404, "x"])
def test_a_code_keeps_its_type_through_every_record(code: Any) -> None:
    error = rebuild(written(name="N", message="m", code=code, data=None), NONE, "s")
    again = rebuild(ErrorRecord.from_json(describe(error).to_json()), NONE, "s")
    assert isinstance(again, Portable)
    assert (again.code, type(again.code)) == (code, type(code))


def test_a_registered_class_takes_an_error_of_another_language_and_types_its_fields() -> None:
    errortypes.register(Short, "NoStock")
    error = rebuild(written(name="NoStock", message="no tea", code=None, data={"missing": "2.5"}), NONE, "s")
    assert error == Short(Decimal("2.5"), "tea")
    assert type(error) is Short


@pytest.mark.parametrize("data", [None, {}, {"item": "tea"}, {"missing": "much"}, 7, ["x"], {"args": 3}])
def test_data_that_do_not_make_the_registered_class_are_a_portable_error(data: Any) -> None:
    errortypes.register(Short, "NoStock")
    error = rebuild(written(name="NoStock", message="no tea", code=None, data=data), NONE, "s")
    assert isinstance(error, Portable)
    assert error.data == data


def test_an_error_is_written_in_the_form_that_others_read() -> None:
    errortypes.register(Declined, "declined")
    assert stored(Declined("o-1", 100)) == {
        "name": "declined",
        "message": "order o-1 was declined",
        "code": 17,
        "data": {"order": "o-1", "cents": 100},
    }
    assert stored(ValueError("x")) == {"name": "ValueError", "message": "x", "code": None, "data": None}
    assert stored(perdure.StepTimeout("slow"))["code"] == "PRD-404"


@pytest.mark.parametrize(
    "error", [Declined("o", 1), KeyError("k"), OSError(2, "gone"), Short(Decimal(1)), ValueError()]
)
def test_what_was_written_so_comes_back_as_its_own_class(error: Exception) -> None:
    again = rebuild(ErrorRecord.from_json(portable(describe(error)).to_json()), NONE, "s")
    assert (type(again), str(again)) == (type(error), str(error))
    assert vars(again).items() >= vars(error).items()


def test_functions_of_an_error_make_and_read_its_data() -> None:
    def read(data: dict[str, int]) -> Declined:
        return Declined("?", data["n"])

    errortypes.register(Declined, "declined", lambda error: {"n": error.cents}, read)
    assert stored(Declined("o", 3))["data"] == {"n": 3}
    again = rebuild(ErrorRecord.from_json(portable(describe(Declined("o", 3))).to_json()), NONE, "s")
    assert isinstance(again, Declined)
    assert again.cents == 3


def test_all_failures_of_a_step_come_back_in_that_form_too() -> None:
    error = MaxStepRetriesExceeded("all failed", (Declined("o", 1), KeyError("k")), 2)
    record = ErrorRecord.from_json(portable(describe(error, "charge")).to_json())
    again = rebuild_run(record, "r")
    assert isinstance(again, MaxStepRetriesExceeded)
    assert [type(each) for each in again.errors] == [Declined, KeyError]
    assert record.step == "charge"


@pytest.mark.parametrize("data", [object(), float("nan"), {"a": "\0"}])
def test_data_that_cannot_be_stored_are_left_out_of_a_portable_error(data: Any) -> None:
    record = describe(Portable("N\0", "m", "c\0", data))
    again = rebuild(ErrorRecord.from_json(record.to_json()), NONE, "s")
    assert isinstance(again, Portable)
    assert "\0" not in record.to_json().encode().decode("unicode_escape")
    assert (again.message, again.data) == ("m", None)


def test_a_status_shows_the_name_as_its_type_also_of_a_text_that_was_cut() -> None:
    text = portable(describe(Declined("o", 1), "charge")).to_json()
    shown = read_error(text)
    assert (shown.type, shown.message, shown.code, shown.step) == (
        f"{__name__}.Declined",
        "order o was declined",
        "17",
        "charge",
    )
    cut = read_error(text[:-10])
    assert (cut.type, cut.message) == (shown.type, shown.message)


async def test_a_body_may_raise_and_catch_a_portable_error(engine: Engine) -> None:
    @engine.step
    async def find() -> None:
        raise Portable("NoSuchCustomer", "customer 7 is not there", 404, {"customer": 7})

    @engine.workflow
    async def flow() -> list[Any]:
        try:
            await find()
        except Portable as error:
            return [error.name, error.code, error.data]
        return []

    run = engine.run_of(flow)
    first, second = await engine.execute(run), await engine.execute(run)
    assert first == second
    assert json.loads(first.output) == ["NoSuchCustomer", 404, {"customer": 7}]


# -- runs that are portable


async def test_a_portable_run_records_the_failures_of_its_steps_in_that_form(engine: Engine) -> None:
    @engine.step
    async def charge() -> None:
        raise Declined("o-1", 100)

    @engine.workflow
    async def flow() -> str:
        try:
            await charge()
        except Declined as error:
            return f"{error.order} {error.cents}"
        return ""

    run = engine.run_of(flow, serialization=Serialization.PORTABLE)
    first, second = await engine.execute(run), await engine.execute(run)
    assert first == second
    assert first.output == '"o-1 100"'
    assert json.loads(run.rows[0].error or "") == {
        "name": f"{__name__}.Declined",
        "message": "order o-1 was declined",
        "code": 17,
        "data": {"order": "o-1", "cents": 100},
    }


async def test_a_portable_run_fails_in_that_form_with_the_step_beside_it(engine: Engine) -> None:
    @engine.step(name="charge", max_attempts=2, interval=0)
    async def charge() -> None:
        raise Declined("o-1", 100)

    @engine.workflow
    async def flow() -> None:
        await charge()

    run = engine.run_of(flow, serialization=Serialization.PORTABLE)
    ending = await engine.execute(run)
    assert isinstance(ending, Failed)
    stored = json.loads(ending.error.to_json())
    assert (stored["name"], stored["code"], stored["step"]) == (
        "perdure.errors.MaxStepRetriesExceeded",
        "PRD-405",
        "charge",
    )
    assert [each["name"] for each in stored["attempts"]] == [f"{__name__}.Declined"] * 2
    assert json.loads(run.rows[0].error or "")["name"] == "perdure.errors.MaxStepRetriesExceeded"
    error = rebuild_run(ErrorRecord.from_json(ending.error.to_json()), "r")
    assert isinstance(error, MaxStepRetriesExceeded)
    assert [type(each) for each in error.errors] == [Declined, Declined]


async def test_a_portable_run_records_the_failure_of_a_durable_call_in_that_form(engine: Engine) -> None:
    @engine.workflow
    async def flow() -> str:
        try:
            await perdure.handle("nobody").result()
        except perdure.NonExistentWorkflow as error:
            return error.code
        return ""

    run = engine.run_of(flow, serialization=Serialization.PORTABLE)
    first, second = await engine.execute(run), await engine.execute(run)
    assert first == second
    assert first.output == '"PRD-522"'
    assert json.loads(run.rows[0].error or "")["name"] == "perdure.errors.NonExistentWorkflow"


@pytest.mark.parametrize("serialization", [None, Serialization.NATIVE])
async def test_other_runs_fail_as_ever(engine: Engine, serialization: Serialization | None) -> None:
    @engine.workflow
    async def flow() -> None:
        raise ValueError("x")

    ending = await engine.execute(engine.run_of(flow, serialization=serialization))
    assert isinstance(ending, Failed)
    assert json.loads(ending.error.to_json()) == {"type": "ValueError", "message": "x"}
