"""Statements that must say the same in two files, as SQL has no way to share it."""

import re
from pathlib import Path

import perdure.store
import pytest
from perdure.store.statements import sql

CALLS = sorted(
    file.stem
    for file in (Path(perdure.store.__file__).parent / "sql").glob("call_*.sql")
    if "INSERT INTO" in file.read_text()
)
"""Statements of calls that have an effect."""


def part(statement: str, first: str, last: str) -> str:
    """From `first` up to `last`, whatever the parameters are called and wherever its lines end."""
    text = statement[statement.index(first) :]
    return " ".join(re.sub(r"\$\d+", "$", text[: text.index(last)]).split())


def test_the_small_statement_of_the_journal_tests_ownership_as_the_whole_one() -> None:
    small, whole = sql("journal_steps"), sql("journal_commit")
    assert part(small, "WITH own", "), steps") == part(whole, "WITH own", "), fresh")


def test_the_small_statement_of_the_journal_writes_steps_as_the_whole_one() -> None:
    small, whole = sql("journal_steps"), sql("journal_commit")
    assert part(small, "), steps AS", ")\nSELECT own.run") == part(whole, "), steps AS", "), ending AS")


def test_a_claim_from_a_queue_with_limits_takes_runs_as_every_claim() -> None:
    claim, limited = sql("claim"), sql("claim_limited")
    assert part(limited, "), pick AS", "), paid AS") == part(claim, "), pick AS", ")\nSELECT g.number")


SAME_IN_CALLS = {
    "the test of ownership": ("FROM perdure.workflows w", "), call AS"),
    "which calls are still to be done": ("JOIN own ON own.id = r.id", "), mark AS"),
    "which call was the last": ("FROM (SELECT call.id, call.fence, max(call.seq)", "), "),
    "which step may be written": ("WHERE t.status < 30", "\n"),
    "the rows of owned runs": ("SELECT own.id, own.fence, own.cancel_mode", "UNION ALL"),
}


def test_every_call_with_an_effect_is_compared() -> None:
    assert CALLS == [
        "call_await_event",
        "call_await_runs",
        "call_await_stream",
        "call_close_stream",
        "call_receive",
        "call_send",
        "call_set_event",
        "call_start",
        "call_write_stream",
    ]


OTHERWISE = {
    ("which step may be written", "call_await_runs"),  # writes none
    ("which calls are still to be done", "call_write_stream"),  # in a step also with a cancel that lets it finish
    ("which calls are still to be done", "call_close_stream"),
    ("which call was the last", "call_write_stream"),
}
"""Calls that do not say it as the others do."""


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("what", SAME_IN_CALLS)
def test_all_calls_say_the_same(call: str, what: str) -> None:
    if (what, call) in OTHERWISE:
        return
    assert part(sql(call), *SAME_IN_CALLS[what]) == part(sql("call_send"), *SAME_IN_CALLS[what])


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("begin", [("WITH own", "FROM"), ("), mark AS", "FROM")], ids=["columns", "mark"])
def test_all_calls_begin_the_same_and_may_add_to_it(call: str, begin: tuple[str, str]) -> None:
    """The start of a child takes more of its parent, and notes that the parent has children."""
    assert part(sql(call), *begin).startswith(part(sql("call_send"), *begin))
