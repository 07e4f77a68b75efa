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


def assignments(name: str, *after: str) -> dict[str, str]:
    """What a statement sets, by column, in the last UPDATE or upsert behind these words."""
    text = re.sub(r"--[^\n]*", "", sql(name))
    for words in after:
        text = text[text.index(words) + len(words) :]
    text = re.sub(r"\$\d+", "$", text[re.search(r"\bSET\b", text).end() :])  # type: ignore[union-attr]
    found, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        ends = depth < 0 or (not depth and re.match(r"\s(FROM|WHERE|RETURNING)\s", text[at:]))
        if ends or (sign == "," and not depth):
            found.append(text[start:at])
            start = at + 1
        if ends:
            break
    pairs = [each.split("=", 1) for each in found]
    return {column.strip(): " ".join(said.split()) for column, said in pairs}


def written(name: str) -> set[str]:
    """Tables that a statement writes to."""
    return set(re.findall(r"(?:INSERT INTO|UPDATE|DELETE FROM) perdure\.(\w+)", sql(name)))


MANAGES = sorted(file.stem for file in (Path(perdure.store.__file__).parent / "sql").glob("manage_*.sql"))

OF_THEIR_OWN = {"manage_attributes", "manage_delay", "manage_fork", "manage_fork_streams", "manage_rewind_streams"}
"""Statements that change runs as no other does; that the first copies events as a rewind restores them is compared."""

ANEW = {
    "manage_resume": ("WITH taken AS (",),
    "manage_rewind": ("), run AS (",),
    "rerun": (),
    "sweep_retry": (),
}
"""Statements that make a run claimable that had stopped, and where they do it."""

STOPPED_OTHERWISE = {
    # From any state, also from an owner that has not ended it.
    ("manage_resume", "fence"),
    ("manage_resume", "worker_id"),
    ("manage_resume", "suspended"),
    # What it undoes it goes on with, behind the cut it does not.
    ("manage_resume", "undo"),
    ("manage_rewind", "undo"),
    ("manage_rewind", "undo_at"),
    ("manage_rewind", "rewinds"),
    # A start: any version may take it, and its deadline is the parent's.
    ("rerun", "version"),
    ("rerun", "started_at"),
    ("rerun", "start_token"),
    ("rerun", "deadline_at"),
    ("rerun", "undo"),
}
"""What one of them says that the others do not, or otherwise."""

NOT_SAID = {
    # It takes no children with it that were cancelled, as it is for what has failed.
    "rerun": {"deadline_inherited", "cascades"},
    # The same attempts go on.
    "sweep_retry": {
        "edits",
        "run_attempts",
        "recoveries",
        "recovered_at_step",
        "deadline_at",
        "deadline_inherited",
        "cancel_mode",
        "cancel_reason",
        "cancel_cause",
        "deduplication_id",
        "cascades",
        "parent_told",
        "run_at",
        "finished_at",
    },
}


def test_every_statement_that_manages_runs_and_writes_is_compared() -> None:
    writing = {name for name in MANAGES if written(name)}
    assert writing == OF_THEIR_OWN | {"manage_resume", "manage_rewind", "manage_step"}


def test_what_takes_a_run_up_again_says_the_same() -> None:
    said = {name: assignments(name, *where) for name, where in ANEW.items()}
    rewind = {
        column: text
        for column, text in said["manage_rewind"].items()
        if ("manage_rewind", column) not in STOPPED_OTHERWISE
    }
    for name, found in said.items():
        own = {column for statement, column in STOPPED_OTHERWISE if statement == name}
        assert own <= found.keys()
        expected = {column: text for column, text in rewind.items() if column not in own | NOT_SAID.get(name, set())}
        assert {column: text for column, text in found.items() if column not in own} == expected


CANCELS = {
    "run_cancel": ("), done AS (",),
    "run_gone": ("UPDATE perdure.workflows w",),
    "sweep_cascade_children": ("UPDATE perdure.workflows w",),
    "sweep_overdue": ("UPDATE perdure.workflows w",),
    "manage_rewind": ("), cancelled AS (",),
}
"""Statements that cancel runs, and where."""


@pytest.mark.parametrize("name", CANCELS)
def test_what_cancels_a_run_sets_all_that_a_cancel_sets(name: str) -> None:
    found = assignments(name, *CANCELS[name])
    assert found.keys() >= {"cancel_mode", "cancel_reason", "status", "fence", "finished_at"}
    assert {column: found[column] for column in ("wake_at", "waiting_for", "edits")} == {
        "wake_at": "NULL",
        "waiting_for": "NULL",
        "edits": "w.edits + 1",
    }


def test_what_a_rewind_and_a_cascade_do_to_children_is_the_same_but_for_what_is_to_be_undone() -> None:
    rewound = assignments("manage_rewind", *CANCELS["manage_rewind"])
    passed_on = assignments("sweep_cascade_children", *CANCELS["sweep_cascade_children"])
    assert passed_on["finished_at"].replace(" AND NOT child.undoes", "") == rewound["finished_at"]
    assert passed_on["status"].replace(" WHEN child.undoes THEN 10", "") == rewound["status"]
    assert passed_on["status_due_at"] == rewound["status_due_at"]


def test_the_step_of_a_call_that_manages_is_written_as_every_step() -> None:
    assert part(sql("manage_step"), *SAME_IN_CALLS["which step may be written"]) == part(
        sql("call_send"), *SAME_IN_CALLS["which step may be written"]
    )
    mine, whole = assignments("manage_step", "ON CONFLICT"), assignments("journal_commit", "), steps AS", "ON CONFLICT")
    assert mine.keys() <= whole.keys()
    same = mine.keys() - {"error", "wake_at"}  # it succeeds and waits for nothing
    assert {column: mine[column] for column in same} == {column: whole[column] for column in same}


def test_a_fork_takes_the_events_that_a_rewind_restores() -> None:
    order = ("ORDER BY h.name", "\n)")
    assert part(sql("manage_fork"), *order) == part(sql("manage_rewind"), *order)


def test_steps_are_opened_again_the_same_by_a_retry_and_where_they_undo() -> None:
    retried, undone = assignments("sweep_retry_steps", "UPDATE perdure.workflow_steps"), assignments("undo_reopen")
    assert retried.pop("output") == "NULL"  # of a select, which undoes nothing
    assert retried == undone


def test_what_promises_an_undo_and_what_begins_with_it_test_ownership_alike() -> None:
    owned = ("FROM perdure.workflows w\n     WHERE w.id = ", ")")
    assert part(sql("undo_promise"), *owned) == part(sql("undo_begin"), *owned)
