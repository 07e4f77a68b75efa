"""A short session of faults in the tests, and what makes a longer one worth its time: that the checker can fail."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from perdure.model.states import RunStatus, StepStatus

from tests.faults.__main__ import lines
from tests.faults.check import Evidence, Kind, judge
from tests.faults.flows import INTERPRETERS
from tests.faults.harness import Outcome, session
from tests.faults.load import Seen, Started
from tests.faults.model import EXPECTATIONS, expected
from tests.faults.programs import BY_CLIENT, KINDS, MAKERS, Program, program
from tests.faults.schedule import KINDS as FAULT_KINDS
from tests.faults.schedule import ON_CLIENTS, client_schedule, schedule
from tests.faults.wire import Frames, Questions, hide_name, statements
from tests.support.postgres import PostgresServer

SECONDS = 30.0
SEED = 4


@pytest.mark.timeout(240)
async def test_random_programs_come_to_their_end_whatever_breaks(pg_server: PostgresServer) -> None:
    outcome = await session(pg_server, SEED, SECONDS)
    assert not outcome.problems, "\n".join(lines(outcome, SECONDS))
    assert outcome.runs > 50
    assert len(outcome.faults) > len(FAULT_KINDS) // 3
    wanted = {"ended_by_deadline", "runs_started_by_clients", "idempotency_keys_asked", "outputs_by_a_serializer"}
    assert wanted <= outcome.covered.keys()


# -- the same seed, the same session


def test_a_seed_gives_the_same_programs_and_faults() -> None:
    assert [program(7, number) for number in range(50)] == [program(7, number) for number in range(50)]
    assert list(islice(schedule(7, 4), 50)) == list(islice(schedule(7, 4), 50))
    assert list(islice(client_schedule(7), 50)) == list(islice(client_schedule(7), 50))
    assert program(7, 3) != program(8, 3)


def test_every_fault_and_every_kind_of_node_turns_up() -> None:
    assert {fault.kind for fault in islice(schedule(1, 4), 1000)} == set(FAULT_KINDS)
    assert set(statements()) <= {fault.statement for fault in islice(schedule(1, 4), 5000)}
    kinds = {node["kind"] for number in range(2000) for node in program(1, number).nodes}
    assert kinds >= set(KINDS)
    assert kinds == set(MAKERS)
    assert {fault.kind for fault in islice(client_schedule(1), 1000)} == set(ON_CLIENTS)
    assert {program(1, number).by for number in range(200)} == set(BY_CLIENT)


def test_every_kind_of_node_has_an_interpreter_and_an_expectation() -> None:
    assert set(INTERPRETERS) == set(EXPECTATIONS) == {*MAKERS, "listen", "watch", "speak", "does"}


def test_programs_are_json_as_they_are() -> None:
    for number in range(100):
        made = program(2, number).input
        assert json.loads(json.dumps(made)) == made


# -- the checker finds what is wrong


def healthy() -> tuple[Started, Evidence]:
    """A run of two steps, one of them retried, that ended as it must."""
    nodes = [
        {"kind": "step", "key": "a", "ms": 0, "sync": False},
        {"kind": "retried", "key": "b", "ms": 0, "fails": 1},
    ]
    run = Started("r", Program(nodes))
    want = expected(run.program, run.id)
    rows: dict[int, Any] = {
        index: {"name": step.name, "status": step.status, "output": step.output, "attempts": step.failures}
        for index, step in enumerate(want.steps)
    }
    row = {
        "status": RunStatus.SUCCEEDED,
        "output": want.output,
        "error": None,
        "run_attempts": 0,
        "cancel_mode": None,
        "cancel_reason": None,
        "deadline_at": None,
        "finished_at": datetime(2026, 1, 1, tzinfo=UTC),
        "parent_id": None,
        "deleted": False,
    }
    bodies = {(0, 1): 1, (1, 1): 1, (1, 2): 1}
    return run, Evidence(runs={"r": row}, steps={"r": rows}, bodies={"r": bodies})


def test_what_ended_as_it_must_is_no_problem() -> None:
    run, found = healthy()
    assert judge([run], found) == []


def lose_the_row(found: Evidence) -> None:
    found.runs.clear()


def lose_a_step(found: Evidence) -> None:
    del found.steps["r"][1]


def leave_a_step_open(found: Evidence) -> None:
    found.steps["r"][1]["status"] = StepStatus.RUNNING  # type: ignore[index]


def change_an_output(found: Evidence) -> None:
    found.steps["r"][0]["output"] = "1"  # type: ignore[index]


def change_the_result(found: Evidence) -> None:
    found.runs["r"]["output"] = "1"  # type: ignore[index]


def forget_an_attempt(found: Evidence) -> None:
    del found.bodies["r"][1, 1]


def try_once_too_often(found: Evidence) -> None:
    found.bodies["r"][0, 2] = 1


def do_more_than_the_program(found: Evidence) -> None:
    found.bodies["r"][2, 1] = 1


def never_end(found: Evidence) -> None:
    found.runs["r"]["status"] = RunStatus.WAITING  # type: ignore[index]


def end_wrongly(found: Evidence) -> None:
    found.runs["r"]["status"] = RunStatus.FAILED  # type: ignore[index]


def run_again(found: Evidence) -> None:
    found.rerun.append({"run": "r", "step_index": 0})


def count_an_attempt_too_many(found: Evidence) -> None:
    found.runs["r"]["run_attempts"] = 1  # type: ignore[index]


def begin_too_early(found: Evidence) -> None:
    found.odd.append({"run": "r", "sentence": "the body began and its start was not durable"})


def write_twice(found: Evidence) -> None:
    found.not_once.append({"run": "r", "step_index": 0, "times": 2, "finished": True})


def write_without_an_outcome(found: Evidence) -> None:
    found.not_once.append({"run": "r", "step_index": 0, "times": 1, "finished": False})


def write_nothing(found: Evidence) -> None:
    found.not_once.append({"run": "r", "step_index": 0, "times": 0, "finished": True})


def end_although_cancelled(found: Evidence) -> None:
    found.runs["r"]["cancel_mode"] = "Graceful"  # type: ignore[index]


def break_a_key(found: Evidence) -> None:
    found.keys.append({"run": "r", "kind": "finished_steps_rerun", "sentence": "its body began twice"})


def make_a_run_of_nobody(found: Evidence) -> None:
    found.runs["r-9"] = found.runs["r"]


def write_as_a_zombie(found: Evidence) -> None:
    found.zombies.append({"run": "r", "what": "run", "number": 1})


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lose_the_row, Kind.RUN_LOST),
        (end_wrongly, Kind.RUN_LOST),
        (change_the_result, Kind.RUN_LOST),
        (lose_a_step, Kind.STEP_LOST),
        (leave_a_step_open, Kind.STEP_LOST),
        (change_an_output, Kind.STEP_LOST),
        (forget_an_attempt, Kind.STEP_LOST),
        (try_once_too_often, Kind.STEP_LOST),
        (do_more_than_the_program, Kind.STEP_LOST),
        (never_end, Kind.STUCK),
        (run_again, Kind.RERUN),
        (write_as_a_zombie, Kind.ZOMBIE),
        (count_an_attempt_too_many, Kind.STEP_LOST),
        (begin_too_early, Kind.STEP_LOST),
        (write_twice, Kind.RERUN),
        (write_without_an_outcome, Kind.ZOMBIE),
        (write_nothing, Kind.STEP_LOST),
        (end_although_cancelled, Kind.RUN_LOST),
        (break_a_key, Kind.RERUN),
        (make_a_run_of_nobody, Kind.ZOMBIE),
    ],
)
def test_the_checker_sees_what_is_wrong(change: Any, kind: Kind) -> None:
    run, found = healthy()
    change(found)
    assert [problem.kind for problem in judge([run], found)] == [kind]


def test_a_cancel_that_was_taken_must_end_the_run() -> None:
    run, found = healthy()
    run.cancelled = RunStatus.RUNNING
    assert [problem.kind for problem in judge([run], found)] == [Kind.RUN_LOST]
    run.cancelled = RunStatus.SUCCEEDED
    assert judge([run], found) == []


@pytest.mark.parametrize(
    ("cancelled", "child", "problems"),
    [
        (RunStatus.RUNNING, RunStatus.CANCELLED, []),
        (RunStatus.RUNNING, RunStatus.SUCCEEDED, [Kind.STEP_LOST]),
        (None, RunStatus.CANCELLED, [Kind.RUN_LOST, Kind.STEP_LOST]),
    ],
    ids=["its own cancel", "the child has ended well", "nobody has cancelled it"],
)
def test_a_cancelled_run_may_hear_of_its_cancel_by_its_children(
    cancelled: RunStatus | None, child: RunStatus, problems: list[Kind]
) -> None:
    sleepy = {"kind": "step", "key": "c", "ms": 0, "sync": False}
    run = Started("r", Program([{"kind": "children", "key": "k", "programs": [[sleepy]]}]), cancelled=cancelled)
    want = expected(run.program, "r")
    [child_id] = want.children
    _, found = healthy()
    row = found.runs["r"]
    ended = RunStatus.CANCELLED if cancelled else RunStatus.FAILED
    result = {"name": "perdure.result", "status": StepStatus.FAILED, "output": None, "attempts": 0}
    steps = {
        index: result
        if step.name == result["name"]
        else {"name": step.name, "status": step.status, "output": step.output, "attempts": step.failures}
        for index, step in enumerate(want.steps)
    }
    asked = {"cancel_mode": "Immediate", "cancel_reason": "somebody wanted it"} if cancelled else {}
    found.runs = {"r": {**row, **asked, "status": ended}, child_id: {**row, "status": child, "parent_id": "r"}}
    found.steps, found.bodies = {"r": steps, child_id: {}}, {}
    mine = [problem.kind for problem in judge([run], found) if problem.run == "r"]
    assert mine == problems


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def cut_off_by_a_deadline(status: RunStatus = RunStatus.CANCELLED) -> tuple[Started, Evidence]:
    """A run whose deadline came at noon, after its second step, while it slept."""
    run, found = healthy()
    slept = [*run.program.nodes, {"kind": "trap", "key": "t", "how": "sleep", "ms": 1}]
    run = Started("r", Program(slept, timeout=1.0))
    when = {"deadline_at": NOON, "finished_at": NOON + timedelta(seconds=1)}
    found.runs["r"] = {
        **found.runs["r"],
        "status": status,
        "output": None,
        "cancel_reason": "its deadline has passed",
        **when,
    }
    sleeping = {"name": "perdure.sleep", "status": StepStatus.WAITING, "output": None, "attempts": 0}
    found.steps["r"][2] = sleeping
    return run, found


def test_a_deadline_ends_what_it_met_and_keeps_the_finished_steps() -> None:
    run, found = cut_off_by_a_deadline()
    assert judge([run], found) == []
    lose_a_step(found)
    assert [problem.kind for problem in judge([run], found)] == [Kind.STEP_LOST]


def test_a_run_that_never_ends_by_itself_must_be_cancelled() -> None:
    run, found = cut_off_by_a_deadline(RunStatus.SUCCEEDED)
    assert [problem.kind for problem in judge([run], found)] == [Kind.RUN_LOST]


def test_a_deadline_that_has_not_come_ends_nothing() -> None:
    run, found = cut_off_by_a_deadline()
    found.runs["r"]["deadline_at"] = NOON + timedelta(seconds=2)  # type: ignore[index]
    assert [problem.kind for problem in judge([run], found)] == [Kind.RUN_LOST]


@pytest.mark.parametrize(
    ("seen", "kinds"),
    [
        (None, [Kind.STUCK]),
        (Seen(RunStatus.SUCCEEDED, output="1"), [Kind.RUN_LOST]),
        (Seen(RunStatus.FAILED, error="ValueError"), [Kind.RUN_LOST]),
    ],
)
def test_a_client_must_see_how_its_run_ended(seen: Seen | None, kinds: list[Kind]) -> None:
    run, found = healthy()
    run.program = replace(run.program, by="start")
    run.seen = Seen(RunStatus.SUCCEEDED, output=found.runs["r"]["output"])
    assert judge([run], found) == []
    run.seen = seen
    assert [problem.kind for problem in judge([run], found)] == kinds


def test_a_child_that_fails_is_expected_to_be_handled() -> None:
    failing = {"kind": "fail", "key": "f"}
    handled = {"kind": "handled", "key": "h", "programs": [[failing]], "together": True, "fallback": []}
    want = expected(Program([handled]), "r")
    assert want.status is RunStatus.SUCCEEDED
    assert [(step.name, step.status) for step in want.steps] == [
        ("perdure.start", StepStatus.SUCCEEDED),
        ("perdure.result", StepStatus.FAILED),
    ]
    assert expected(want.children["r-0"], "r-0").status is RunStatus.FAILED


@pytest.mark.parametrize(
    ("child", "kinds"),
    [
        (None, []),
        ({"deleted": True, "status": RunStatus.CANCELLED}, []),
        ({"deleted": True, "status": RunStatus.RUNNING}, [Kind.STUCK]),
        ({"deleted": False, "status": RunStatus.CANCELLED}, [Kind.RUN_LOST]),
    ],
    ids=["gone", "about to go", "never ends", "forgotten"],
)
def test_a_child_that_was_removed_is_gone_or_has_ended(child: dict[str, Any] | None, kinds: list[Kind]) -> None:
    run = Started("r", Program([{"kind": "deleted", "key": "d", "nodes": []}]))
    want = expected(run.program, run.id)
    found = healthy()[1]
    found.runs["r"]["output"] = want.output  # type: ignore[index]
    found.steps["r"] = {
        index: {"name": step.name, "status": step.status, "output": step.output, "attempts": 0}
        for index, step in enumerate(want.steps)
    }
    found.bodies.clear()
    assert list(want.children) == ["r-0"]
    if child is not None:
        found.runs["r-0"] = child
    assert [problem.kind for problem in judge([run], found)] == kinds


def test_the_last_line_is_json_with_all_counts() -> None:
    run, found = healthy()
    write_as_a_zombie(found)
    said = json.loads(lines(Outcome(1, 5.0, runs=1, problems=judge([run], found)), 6.0)[-1])
    assert said["zombie_writes"] == 1
    assert {kind.value for kind in Kind} | {"runs", "steps", "faults", "covered", "seed", "seconds"} == set(said)


# -- the protocol


def message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


def test_statements_are_known_by_their_text_however_the_bytes_arrive() -> None:
    from perdure.store.statements import sql

    prepare = message(b"P", b"s1\0" + sql("claim").encode() + b"\0\0\0") + message(b"S", b"")
    run = message(b"B", b"\0s1\0rest") + message(b"E", b"\0\0\0\0\0") + message(b"S", b"")
    ask = message(b"Q", b"BEGIN;\0")
    stream = prepare + run + ask
    for size in (1, 7, len(stream)):
        questions = Questions()
        units = [unit for at in range(0, len(stream), size) for unit in questions.feed(stream[at : at + size])]
        assert [unit.statement for unit in units] == ["", "claim", "BEGIN;"]
        assert b"".join(unit.data for unit in units) == stream


def test_frames_are_whole() -> None:
    frames = Frames()
    whole = message(b"Z", b"I")
    assert list(frames.feed(whole[:3])) == []
    assert list(frames.feed(whole[3:] + whole)) == [whole, whole]


def test_a_hidden_session_has_another_name() -> None:
    body = b"\0\3\0\0user\0me\0application_name\0worker\0\0"
    hidden = hide_name((len(body) + 4).to_bytes(4, "big") + body)
    assert int.from_bytes(hidden[:4], "big") == len(hidden)
    assert b"application_name\0~worker\0" in hidden
