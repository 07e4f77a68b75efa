"""Exceptions as records and back: the body sees the same at first and at replay."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure import MaxStepRetriesExceeded, StepFailed, StepTimeout
from perdure.engine.failures import NONE, Failures, describe, rebuild, rebuild_run, step_of
from perdure.model.outcome import ErrorRecord
from perdure.model.rows import RecordedStep
from perdure.model.states import StepStatus

from tests.support.engine import Engine, output_of


class Declined(Exception):
    """Takes more than a message and keeps what it was told."""

    def __init__(self, order_id: str, cents: int) -> None:
        super().__init__(f"order {order_id}: {cents} cents declined")
        self.order_id = order_id
        self.cents = cents
        self.connection = object()


class Rewrites(Exception):
    """Its text is not made of its arguments."""

    def __str__(self):
        return f"{id(self)}"


class Outer:
    class Nested(Exception): ...


def again(error: BaseException) -> Exception:
    record = ErrorRecord.from_json(describe(error).to_json())
    return rebuild(record, NONE, "step")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        ValueError(),
        ValueError("a", 2),
        KeyError("key"),
        OSError(2, "No such file"),
        StepTimeout("slow"),
        Declined("o-1", 100),
        json.JSONDecodeError("bad", "doc", 1),
        ZeroDivisionError("division by zero"),
    ],
    ids=repr,
)
def test_an_error_is_raised_again_as_its_own_class_with_its_message(error):
    rebuilt = again(error)
    assert type(rebuilt) is type(error)
    assert str(rebuilt) == str(error)


def test_plain_arguments_and_attributes_of_an_error_come_back():
    rebuilt = again(Declined("o-1", 100))
    assert (rebuilt.order_id, rebuilt.cents) == ("o-1", 100)
    assert not hasattr(rebuilt, "connection")
    assert again(OSError(2, "gone")).errno == 2
    assert again(KeyError("k")).args == ("k",)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (SystemExit(1), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (StopIteration("x"), "StopIteration"),
        (Rewrites(), f"{__name__}.Rewrites"),
        (Outer.Nested("x"), f"{__name__}.Outer.Nested"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "UnicodeDecodeError"),
        (ExceptionGroup("g", [ValueError("a")]), "ExceptionGroup"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_raised_again_is_a_step_failed_that_names_it(error, name):
    rebuilt = again(error)
    assert type(rebuilt) is StepFailed
    assert rebuilt.type_name == name
    assert name in str(rebuilt)


@pytest.mark.parametrize(
    "record",
    [
        ErrorRecord("os.path", "x"),
        ErrorRecord("no.such.module.Error", "x"),
        ErrorRecord("", "x"),
        ErrorRecord("int", "5"),
        ErrorRecord("ValueError", "x", raised="{"),
        ErrorRecord("ValueError", "x", raised='{"args": ["y"], "attributes": {}}'),
        ErrorRecord("ValueError", "x", raised="7"),
        ErrorRecord.from_json("not json at all"),
        ErrorRecord.from_json("[1]"),
    ],
    ids=repr,
)
def test_a_record_that_fits_nothing_is_a_step_failed_not_a_crash(record):
    assert type(rebuild(record, NONE, "")) is StepFailed


def test_a_record_does_not_have_a_foreign_module_imported():
    record = ErrorRecord(type="antigravity.Error", message="up")
    assert "antigravity" not in sys.modules
    error = rebuild(record, NONE, "s")
    assert isinstance(error, StepFailed)
    assert "antigravity" not in sys.modules


async def test_the_first_run_and_the_replay_raise_the_same_class_also_for_local_classes(engine: Engine):
    class Local(Exception): ...

    @engine.step
    async def fails():
        raise Local("x")

    @engine.workflow
    async def flow():
        try:
            await fails()
        except Local:
            return "its own class"
        except StepFailed as error:
            return error.type_name

    run = engine.run_of(flow)
    first, replayed = output_of(await engine.execute(run)), output_of(await engine.execute(run))
    assert first == replayed
    assert first.endswith("Local")


async def test_the_first_run_has_the_original_as_cause(engine: Engine):
    original = Declined("o", 1)

    @engine.step
    async def fails():
        raise original

    @engine.workflow
    async def flow():
        try:
            await fails()
        except Declined as error:
            return error is not original and error.__cause__ is original

    assert await engine.output(flow) is True


def test_the_step_of_an_error_is_found_through_its_causes():
    inner = rebuild(ErrorRecord("ValueError", "x"), NONE, "charge")
    try:
        raise RuntimeError("outer") from inner
    except RuntimeError as error:
        assert step_of(error) == "charge"
    assert step_of(ValueError("x")) == ""
    loop = ValueError("loop")
    loop.__cause__ = loop
    assert step_of(loop) == ""


def test_failures_survive_a_row_and_tolerate_another_shape():
    failures = NONE.plus(describe(ValueError("a"))).plus(describe(KeyError("b")))
    row = RecordedStep(0, "s", StepStatus.RETRYING, "[]", None, None, 2, failures.to_json(), None, None)
    assert Failures.of(row) == failures
    for text in ("{", "7", "[1, 2]", '"x"', None):
        odd = RecordedStep(0, "s", StepStatus.RETRYING, "[]", None, None, 2, text, None, None)
        assert Failures.of(odd) == Failures(2, ())


def test_all_errors_come_back_with_max_step_retries_exceeded_each_of_its_own_class():
    failures = NONE.plus(describe(Declined("o-1", 100))).plus(describe(KeyError("b"))).plus(describe(Rewrites()))
    record = ErrorRecord("perdure.errors.MaxStepRetriesExceeded", "failed thrice", "PRD-405")
    rebuilt = rebuild(record, failures, "s")
    assert isinstance(rebuilt, MaxStepRetriesExceeded)
    assert [type(error) for error in rebuilt.errors] == [Declined, KeyError, StepFailed]
    assert (rebuilt.errors[0].order_id, rebuilt.errors[1].args, rebuilt.attempts) == ("o-1", ("b",), 3)


def tried(*errors: Exception) -> MaxStepRetriesExceeded:
    failures = NONE
    for error in errors:
        failures = failures.plus(describe(error))
    return rebuild(ErrorRecord("perdure.errors.MaxStepRetriesExceeded", "all failed", "PRD-405"), failures, "charge")


def test_all_errors_come_back_through_the_failure_of_a_run_and_of_a_parent_that_passes_it_on():
    error = tried(Declined("o-1", 100), KeyError("b"))
    for run in ("child", "parent"):
        error = rebuild_run(ErrorRecord.from_json(describe(error, "charge").to_json()), run)
    assert isinstance(error, MaxStepRetriesExceeded)
    assert [type(each) for each in error.errors] == [Declined, KeyError]
    assert (error.errors[0].cents, error.attempts) == (100, 2)
    assert "raised by run parent in step charge" in error.__notes__


def test_of_very_many_and_very_long_failures_the_first_and_the_latest_are_kept_and_all_are_counted():
    failures = NONE
    for number in range(300):
        failures = failures.plus(describe(ValueError(f"{number} {'x' * 1900}")))
    assert len(failures.to_json()) < 250_000
    record = ErrorRecord("perdure.errors.MaxStepRetriesExceeded", "all failed", "PRD-405")
    error = rebuild(record, failures, "s")
    passed_on = rebuild_run(ErrorRecord.from_json(describe(error).to_json()), "r")
    assert len(describe(error).to_json()) < 70_000
    for each in (error, passed_on):
        assert each.attempts == 300
        assert [str(each.errors[0])[:2], str(each.errors[-1])[:4]] == ["0 ", "299 "]
        assert 10 < len(each.errors) <= 100


def test_a_list_of_failures_in_itself_or_of_something_else_can_be_recorded():
    error = MaxStepRetriesExceeded("all failed")
    error.errors = (error, "no exception")  # type: ignore[assignment]
    rebuilt = again(error)
    assert isinstance(rebuilt, MaxStepRetriesExceeded)
    assert [type(each) for each in rebuilt.errors] == [MaxStepRetriesExceeded, StepFailed]
    assert rebuilt.errors[0].errors == ()
    error.errors = None  # type: ignore[assignment]
    assert again(error).errors == ()


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=5000))
def test_any_message_can_be_stored_and_read(text):
    record = describe(ValueError(text))
    stored = record.to_json()
    stored.encode("ascii")
    assert "\0" not in ErrorRecord.from_json(stored).message
    assert len(record.message) < 2100
    assert type(rebuild(ErrorRecord.from_json(stored), NONE, "")) in (ValueError, StepFailed)


class Unreadable(Exception):
    """Whoever looks at it is told off with what ends a process."""

    def __getattribute__(self, name):
        if name in ("args", "__cause__", "__dict__"):
            raise KeyboardInterrupt(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (Unreadable("x"), f"{__name__}.Unreadable"),
        (type("Odd", (Exception,), {"__qualname__": "O\0\ud800", "__module__": "m\x1f"})("x"), "m\x1f.O\ufffd\ufffd"),
        (type("Coded", (StepFailed,), {"code": object(), "__module__": "m"})("x"), "m.Coded"),
        (type("Coded", (StepFailed,), {"code": "\0\ud800", "__module__": "m"})("x"), "m.Coded"),
        (type("Silent", (StepFailed,), {"__init__": lambda self: None, "__module__": "m"})(), "m.Silent"),
    ],
    ids=["raises more than exceptions", "name", "code that is no text", "code", "no message"],
)
def test_whatever_an_exception_is_its_record_can_be_stored_and_read(error, name):
    record = describe(error, step_of(error))
    assert record.type == name
    stored = record.to_json()
    stored.encode("ascii")
    assert "\\u0000" not in stored
    assert "\\ud800" not in stored
    assert isinstance(rebuild(ErrorRecord.from_json(stored), NONE, "s"), Exception)
    assert isinstance(rebuild_run(ErrorRecord.from_json(stored), "r"), Exception)
