"""Exceptions under a name of their own: what they are recorded as, what comes back, what is refused."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import perdure
import pydantic
import pytest
from perdure import AlreadyRegistered, ConfigurationError, RegistrationError, StepFailed, WorkflowFailed
from perdure.engine import errortypes
from perdure.engine.errortypes import ImportPolicy
from perdure.engine.failures import NONE, describe, rebuild, rebuild_run
from perdure.model.outcome import ErrorRecord
from perdure.worker.settings import load

from tests.support.engine import Engine


@pytest.fixture(autouse=True)
def _own_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(errortypes, "_known", dict(errortypes._known))
    monkeypatch.setattr(errortypes, "_names", dict(errortypes._names))
    before = errortypes.use(None)
    yield
    errortypes.use(before)


def again(error: BaseException) -> Exception:
    return rebuild(ErrorRecord.from_json(describe(error).to_json()), NONE, "step")


class Reason(Enum):
    STOLEN = "stolen"


class Card(pydantic.BaseModel):
    number: str
    limit: Decimal


class Declined(Exception):
    card: Card
    reason: Reason

    def __init__(self, card: Card, reason: Reason, at: datetime, tags: list[str]) -> None:
        super().__init__(f"card {card.number} was declined")
        self.card = card
        self.reason = reason
        self.at = at
        self.tags = tags
        self.details = {"hints": [1, None, {"a": 0.5}]}


@dataclass
class Short(Exception):
    order: str
    cents: Decimal
    missing: list[str] = field(default_factory=list)
    code: ClassVar[str] = "short"

    def __str__(self) -> str:
        return f"{self.order} is {self.cents} short"


def declined() -> Declined:
    return Declined(Card(number="42", limit="9.50"), Reason.STOLEN, datetime(2026, 1, 1, tzinfo=UTC), ["a"])


# -- what comes back


def test_an_error_of_a_file_comes_back_with_the_file_that_it_is_about() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Path("/no/such/file").read_text()
    rebuilt = again(caught.value)
    assert type(rebuilt) is FileNotFoundError
    assert str(rebuilt) == str(caught.value) == "[Errno 2] No such file or directory: '/no/such/file'"
    assert rebuilt.filename == "/no/such/file"
    moved = again(OSError(18, "Invalid cross-device link", "/a", None, "/b"))
    assert isinstance(moved, OSError)
    assert (moved.filename, moved.filename2, moved.args) == ("/a", "/b", (18, "Invalid cross-device link"))


def test_a_model_a_date_and_an_enum_come_back_as_the_class_is_annotated() -> None:
    original, rebuilt = declined(), again(declined())
    assert type(rebuilt) is Declined
    assert vars(rebuilt).items() >= vars(original).items()
    assert str(rebuilt) == "card 42 was declined"


def test_fields_of_a_dataclass_come_back_also_where_it_has_slots() -> None:
    assert again(Short("o-1", Decimal("2.50"), ["a"])) == Short("o-1", Decimal("2.50"), ["a"])
    kind = dataclass(slots=True)(type("Slotted", (Exception,), {"__annotations__": {"at": datetime}}))
    errortypes.register(kind, "slotted")
    rebuilt = again(kind(at=datetime(2026, 1, 1, tzinfo=UTC)))
    assert (type(rebuilt), rebuilt.at) == (kind, datetime(2026, 1, 1, tzinfo=UTC))


def test_what_an_error_was_made_with_comes_back_where_it_is_all_there_is() -> None:
    class Bare(Exception):
        def __init__(self, card: Card) -> None:
            pass

    errortypes.register(Bare, "bare")
    assert again(Bare(Card(number="1", limit=1))).args == (Card(number="1", limit=1),)


def test_an_error_that_cannot_be_recorded_whole_comes_back_with_its_name_and_message(caplog) -> None:
    @perdure.error("holds.socket")
    class Holds(Exception):
        socket: object

    error = Holds("in use")
    error.socket = object()
    rebuilt = again(error)
    assert (type(rebuilt), rebuilt.type_name) == (StepFailed, "holds.socket")
    assert "in use" in str(rebuilt)
    assert "socket" in caplog.text


def test_more_than_can_be_recorded_is_no_error_of_that_class_and_says_so(caplog) -> None:
    error = ValueError("too much")
    error.page = "x" * 20_000
    rebuilt = again(error)
    assert (type(rebuilt), rebuilt.type_name) == (StepFailed, "ValueError")
    assert "16000" in caplog.text
    assert type(again(ValueError("x" * 20_000))) is ValueError


def test_an_error_is_written_and_read_by_functions_of_its_own() -> None:
    def read(card: object) -> Exception:
        return Rejected(card)

    @perdure.error("shop.rejected", encode=lambda error: error.card, decode=read)
    class Rejected(Exception):
        def __init__(self, card: object) -> None:
            self.card = card

    assert again(Rejected({"number": 1})).card == {"number": 1}
    assert json.loads(describe(Rejected([1])).raised) == {"data": [1]}


def test_the_function_that_reads_is_given_the_type_that_it_is_annotated_with() -> None:
    def read(card: Card) -> Exception:
        return Typed(card)

    class Typed(Exception):
        def __init__(self, card: Card) -> None:
            self.card = card

    errortypes.register(Typed, "shop.typed", lambda error: error.card, read)
    assert again(Typed(Card(number="7", limit=3))).card == Card(number="7", limit=3)


@pytest.mark.parametrize(
    ("encode", "decode"),
    [
        (lambda error: object(), lambda data: Exception()),
        (lambda error: 1 / 0, lambda data: Exception()),
        (lambda error: "x" * 20_000, lambda data: Exception()),
        (lambda error: 1, lambda data: 1 / 0),
        (lambda error: 1, lambda data: None),
        (lambda error: 1, lambda data: ValueError("another class")),
    ],
    ids=["object", "raises", "long", "read raises", "none", "another"],
)
def test_functions_that_fail_leave_a_readable_failure(encode, decode) -> None:
    class Own(Exception): ...

    errortypes.register(Own, "own", encode, decode)
    rebuilt = again(Own("what happened"))
    assert type(rebuilt) is StepFailed
    assert str(rebuilt) == "PRD-406: own: what happened"


# -- names


def test_a_registered_error_is_recorded_under_its_name_and_comes_back_where_its_class_stands_now() -> None:
    @perdure.error("shop.declined")
    class Before(Exception): ...

    record = describe(Before("no"))
    assert record.type == "shop.declined"
    errortypes._known.clear()
    errortypes._names.clear()

    @perdure.error("shop.declined")
    class After(Exception): ...

    assert type(rebuild(record, NONE, "s")) is After
    assert type(rebuild_run(record, "r")) is After


def test_rows_from_before_it_had_a_name_and_from_where_it_stood_before_are_read() -> None:
    class Moved(Exception): ...

    old = describe(Moved("x"))
    errortypes.register(Moved, "moved", former_names=["old.place.Moved"])
    for record in (old, ErrorRecord("old.place.Moved", "x"), ErrorRecord("moved", "x")):
        assert type(rebuild(record, NONE, "s")) is Moved


def test_a_name_that_is_registered_nowhere_is_a_readable_failure() -> None:
    rebuilt = rebuild_run(ErrorRecord("shop.elsewhere", "no stock", step="reserve"), "r-1")
    assert type(rebuilt) is WorkflowFailed
    assert (rebuilt.type_name, "no stock" in str(rebuilt)) == ("shop.elsewhere", True)


async def test_a_body_catches_a_registered_error_at_first_and_at_a_replay(engine: Engine) -> None:
    @perdure.error("flow.declined")
    class Local(Exception):
        def __init__(self, card: Card) -> None:
            super().__init__("no")
            self.card = card

    @engine.step
    async def charge() -> None:
        raise Local(Card(number="5", limit=1))

    @engine.workflow
    async def flow() -> str:
        try:
            await charge()
        except Local as error:
            return error.card.number
        return "nothing"

    run = engine.run_of(flow)
    first, second = await engine.execute(run), await engine.execute(run)
    assert first == second
    assert first.output == '"5"'


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (int, "an.int"),
        (KeyboardInterrupt, "stop"),
        (StopIteration, "end"),
        (type("Ends", (StopAsyncIteration,), {}), "ends"),
        (ValueError, "mine"),
        (perdure.StepTimeout, "timeout"),
        (Declined, ""),
        (Declined, "with space"),
        (Declined, "ä"),
        (Declined, "x" * 254),
        (Declined, 7),
        (Declined, "perdure.declined"),
        (Declined, "ValueError"),
    ],
    ids=str,
)
def test_what_cannot_be_registered_as_an_error(kind, name) -> None:
    with pytest.raises(RegistrationError):
        errortypes.register(kind, name)


def test_hooks_go_together_and_are_functions() -> None:
    for hooks in ((str, None), (None, ValueError), ("x", "y")):
        with pytest.raises(RegistrationError):
            errortypes.register(Declined, "hooked", *hooks)


def test_two_classes_under_one_name_are_refused_and_so_is_a_second_name() -> None:
    class Other(Exception): ...

    errortypes.register(Declined, "declined", former_names=["refused"])
    errortypes.register(Declined, "declined")
    for name in ("declined", "refused"):
        with pytest.raises(AlreadyRegistered, match="Declined"):
            errortypes.register(Other, name)
    with pytest.raises(RegistrationError, match="one name"):
        errortypes.register(Declined, "second")


def test_a_file_that_is_imported_under_a_second_name_is_no_second_class(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("shop", "__shop__"):
        module = ModuleType(name)
        module.__file__ = "/app/shop.py"
        monkeypatch.setitem(sys.modules, name, module)
        kind = type("Sold", (Exception,), {"__module__": name})
        errortypes.register(kind, "sold")
        assert type(again(kind("x"))) is kind


# -- what a row may have imported


@pytest.fixture
def library(tmp_path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with a class of errors in a module of its own."""
    package = tmp_path / "errlib_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "deep.py").write_text("class Broken(Exception): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("errlib_of_tests", "errlib_of_tests.deep"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "errlib_of_tests"


def _comes_back(record: ErrorRecord) -> bool:
    return type(rebuild(record, NONE, "s")) is not StepFailed


@pytest.mark.parametrize(
    ("said", "unloaded", "loaded"),
    [
        ("", False, True),
        ("loaded", False, True),
        ("never", False, False),
        ("errlib_of_tests", True, True),
        ("other, errlib_of_tests.deep", True, True),
        ("errlib_of_test", False, False),
        ("errlib_of_tests.deep.more", False, False),
    ],
)
def test_a_class_is_imported_only_as_the_policy_allows(library, monkeypatch, said, unloaded, loaded) -> None:
    monkeypatch.setenv("PERDURE_ERROR_IMPORT", said)
    record = ErrorRecord(f"{library}.deep.Broken", "x")
    assert _comes_back(record) is unloaded
    assert (f"{library}.deep" in sys.modules) is unloaded
    __import__(library)
    assert _comes_back(record) is loaded


def test_registered_classes_pythons_and_perdures_own_come_back_whatever_the_policy_is() -> None:
    errortypes.use(ImportPolicy.parse("never"))
    errortypes.register(Declined, "declined")
    assert type(again(declined())) is Declined
    assert type(again(KeyError("k"))) is KeyError
    assert type(again(perdure.StepTimeout("slow"))) is perdure.StepTimeout
    assert type(again(Short("o", Decimal(1)))) is StepFailed


@pytest.mark.parametrize("said", ["never,shop", "loaded,shop", "shop.*", "a-b", ".shop", "shop:f"])
def test_a_policy_that_says_nothing_is_refused(said: str) -> None:
    with pytest.raises(ConfigurationError, match="PERDURE_ERROR_IMPORT"):
        ImportPolicy.parse(said)


def test_worker_and_client_refuse_such_a_policy_at_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="never,shop"):
        load({"PERDURE_ERROR_IMPORT": "never,shop"})
    monkeypatch.setenv("PERDURE_ERROR_IMPORT", "never,shop")
    with pytest.raises(ConfigurationError, match="never,shop"):
        perdure.Client("postgresql://user@host/database")


def test_a_process_with_a_bad_policy_looks_for_no_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_ERROR_IMPORT", "never,shop")
    assert not _comes_back(describe(Short("o", Decimal(1))))
