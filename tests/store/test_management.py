"""What is done with runs that are there, on their rows: resume, rewind, delete, delay, attributes, cancel."""

import json

import pytest
from perdure.errors import InvalidArgument, NonExistentWorkflow, WorkflowNotRewindable
from perdure.model.management import (
    Cancel,
    Cut,
    Delay,
    Delete,
    Fork,
    Managed,
    Resume,
    Rewind,
    SetAttributes,
    Verb,
    attributes_of,
)
from perdure.model.outcome import Cancelled, Failed, Parked, Succeeded
from perdure.model.rows import WaitingFor
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import management, runs, sweeps, wakes
from perdure.store.management import manage

from tests.store.builders import (
    Connection,
    add_run,
    claim,
    claimed,
    failure,
    finish,
    let_time_pass,
    row,
    start,
    step_rows,
    write,
)
from tests.store.managebuilders import ERROR, NAMELESS, again, contents_of, do, ended, failed, recorded

# -- resume


async def test_a_failed_run_is_taken_up_where_it_failed_with_all_its_attempts(conn: Connection) -> None:
    run = await failed(conn)
    assert await do(conn, Resume()) == Managed("r1", RunStatus.ENQUEUED, "ns", "default", ready=True)

    stored = await row(conn)
    assert (stored["status"], stored["run_attempts"], stored["finished_at"]) == (RunStatus.ENQUEUED, 0, None)
    assert stored["fence"] == run.fence + 2
    taken = await again(conn)
    assert [(step.index, step.status, step.attempts) for step in taken.steps] == [
        (0, StepStatus.SUCCEEDED, 0),
        (1, StepStatus.RETRYING, 0),
    ]
    assert (await runs.result(conn, "r1")) == runs.RunResult(RunStatus.RUNNING, None, None)


async def test_a_failure_that_was_caught_stays_an_outcome_in_a_resumed_run(conn: Connection) -> None:
    run = await claimed(conn, **NAMELESS)
    await recorded(conn, run, start(0, 1), failure(0, 2), start(1, 3), finish(1, 4), ending=Failed(ERROR))
    await do(conn, Resume())
    assert [step["status"] for step in await step_rows(conn)] == [StepStatus.FAILED, StepStatus.SUCCEEDED]


async def test_resume_clears_attempts_deadline_deduplication_and_cancel_and_keeps_the_version(
    conn: Connection,
) -> None:
    run = await claimed(conn, **NAMELESS)
    await conn.execute(
        "UPDATE perdure.workflows"
        " SET deduplication_id = 'd', deadline_at = now(), recoveries = 3, recovered_at_step = 7"
    )
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why")
    await recorded(conn, run, start(), finish(), ending=Cancelled("why"))
    assert (await do(conn, Resume())).ready
    stored = await row(conn)
    cleared = ("deduplication_id", "deadline_at", "cancel_mode", "cancel_reason", "cancel_cause", "finished_at")
    assert [stored[name] for name in cleared] == [None] * 6
    assert (stored["recoveries"], stored["recovered_at_step"], stored["version"]) == (0, -1, "v1")
    assert [step["status"] for step in await step_rows(conn)] == [StepStatus.SUCCEEDED]


async def test_a_run_that_was_recovered_too_often_is_taken_up(conn: Connection) -> None:
    await claimed(conn, **NAMELESS)
    await conn.execute("UPDATE perdure.workflows SET status = 80, worker_id = NULL, fence = 2, finished_at = now()")
    assert (await do(conn, Resume())).ready
    assert (await again(conn)).recoveries == 0


async def test_a_run_that_waits_for_its_next_attempt_is_tried_at_once(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=3, **NAMELESS)
    await recorded(conn, run, start(), failure(), ending=Failed(ERROR))
    assert (await row(conn))["status"] == RunStatus.DELAYED
    assert (await do(conn, Resume())).ready
    assert [step.status for step in (await again(conn)).steps] == [StepStatus.RETRYING]


async def test_resume_does_nothing_to_a_run_that_has_succeeded_or_goes_on(conn: Connection) -> None:
    await ended(conn, "done")
    await claimed(conn, "runs", **NAMELESS)
    await add_run(conn, "ready", **NAMELESS)
    before = await contents_of(conn)
    for run_id, status in (("done", RunStatus.SUCCEEDED), ("runs", RunStatus.RUNNING), ("ready", RunStatus.ENQUEUED)):
        assert await do(conn, Resume(), run_id) == Managed(run_id, status, "ns", "default")
    assert await contents_of(conn) == before


async def test_a_cancelled_run_whose_worker_has_not_ended_it_yet_is_taken_away_from_it(conn: Connection) -> None:
    run = await claimed(conn, **NAMELESS)
    await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "why")
    assert (await do(conn, Resume())).ready
    assert not (await write(conn, run, start(), ending=Cancelled("why"))).owned
    taken = await again(conn)
    assert taken.fence == run.fence + 2
    assert (await write(conn, taken, ending=Succeeded("1"))).ended is RunStatus.SUCCEEDED


async def test_a_resumed_parent_passes_a_later_cancel_on_to_its_children(conn: Connection) -> None:
    await failed(conn, "parent")
    await add_run(conn, "child", **NAMELESS)
    await conn.execute("UPDATE perdure.workflows SET parent_id = 'parent' WHERE id = 'child'")
    await do(conn, Resume(), "parent")
    assert (await row(conn, "parent"))["cascades"]


# -- rewind


async def test_a_rewound_run_goes_on_from_the_cut(conn: Connection) -> None:
    await ended(conn)
    assert (await do(conn, Rewind(Cut.step(1)))).status is RunStatus.ENQUEUED
    taken = await again(conn)
    assert [(step.index, step.output) for step in taken.steps] == [(0, "0")]
    assert (taken.rewinds, taken.stem) == (1, "r1~1")
    assert await runs.result(conn, "r1") == runs.RunResult(RunStatus.RUNNING, None, None)


@pytest.mark.parametrize("status", [10, 20, 30, 40])
async def test_a_run_that_has_not_ended_cannot_be_rewound(conn: Connection, status: int) -> None:
    run = await claimed(conn, max_run_attempts=2, **NAMELESS)
    if status == 20:
        await write(conn, run, ending=Failed(ERROR))
    elif status == 40:
        await write(conn, run, ending=Parked(WaitingFor("x"), 60.0))
    elif status == 10:
        await write(conn, run, ending=Parked(WaitingFor("x"), 60.0))
        await do(conn, Resume())
    before = await contents_of(conn)
    with pytest.raises(WorkflowNotRewindable, match=RunStatus(status).name):
        await do(conn, Rewind(Cut.BEGINNING))
    assert await contents_of(conn) == before


async def test_a_rewind_gives_messages_back_and_events_their_earlier_values(conn: Connection) -> None:
    await ended(conn)
    await conn.execute(
        "INSERT INTO perdure.messages (workflow_id, topic, key, value, consumed_by) VALUES"
        " ('r1', 't', 'a', '1', 0), ('r1', 't', 'b', '2', 2), ('other', 't', 'b', '2', 2);"
        "INSERT INTO perdure.events_history (workflow_id, step_index, name, value, set_at) VALUES"
        " ('r1', 0, 'kept', '1', '2020-01-01'), ('r1', 1, 'again', '1', '2020-01-01'),"
        " ('r1', 2, 'again', '2', '2020-01-02'), ('r1', 2 + 1, 'new', '3', '2020-01-03');"
        "INSERT INTO perdure.events (workflow_id, name, value, fence, seq) VALUES"
        " ('r1', 'kept', '1', 1, 1), ('r1', 'again', '2', 1, 2), ('r1', 'new', '3', 1, 3)"
    )
    await do(conn, Rewind(Cut.step(2)))
    inbox = await conn.fetch("SELECT workflow_id, key, consumed_by FROM perdure.messages ORDER BY 1, 2")
    assert [tuple(each) for each in inbox] == [("other", "b", 2), ("r1", "a", 0), ("r1", "b", None)]
    events = await conn.fetch("SELECT name, value FROM perdure.events ORDER BY 1")
    assert [tuple(each) for each in events] == [("again", "1"), ("kept", "1")]
    assert await conn.fetchval("SELECT max(step_index) FROM perdure.events_history") == 1


async def test_a_rewind_takes_back_what_was_written_to_streams_and_leaves_no_gap(conn: Connection) -> None:
    await ended(conn)
    await conn.execute(
        "INSERT INTO perdure.streams (workflow_id, key, length, closed_by) VALUES"
        " ('r1', 'a', 4, 2), ('r1', 'kept', 1, 0), ('other', 'a', 1, 2);"
        'INSERT INTO perdure.stream_values (workflow_id, key, "offset", value, step_index) VALUES'
        " ('r1', 'a', 0, '0', 0), ('r1', 'a', 1, '1', 2), ('r1', 'a', 2, '2', 1), ('r1', 'a', 3, '3', 2),"
        " ('r1', 'kept', 0, '0', 0), ('other', 'a', 0, '0', 2)"
    )
    await do(conn, Rewind(Cut.step(2)))
    streams = await conn.fetch("SELECT workflow_id, key, length, closed_by FROM perdure.streams ORDER BY 1, 2")
    assert [tuple(each) for each in streams] == [("other", "a", 1, 2), ("r1", "a", 2, None), ("r1", "kept", 1, 0)]
    values = await conn.fetch(
        "SELECT value, \"offset\" FROM perdure.stream_values WHERE workflow_id = 'r1' AND key = 'a' ORDER BY 2"
    )
    assert [tuple(each) for each in values] == [("0", 0), ("2", 1)]


async def test_a_rewind_cancels_the_children_of_undone_steps_and_no_others(conn: Connection) -> None:
    await ended(conn, "parent")
    for run_id, step in (("before", 0), ("undone", 1), ("finished", 1)):
        await add_run(conn, run_id, **NAMELESS)
        await conn.execute(
            "UPDATE perdure.workflows SET parent_id = 'parent', parent_step = $2 WHERE id = $1", run_id, step
        )
    await conn.execute("UPDATE perdure.workflows SET status = 50, finished_at = now() WHERE id = 'finished'")
    await do(conn, Rewind(Cut.step(1)), "parent")
    stands = {run_id: (await row(conn, run_id))["status"] for run_id in ("before", "undone", "finished")}
    assert stands == {"before": 10, "undone": 70, "finished": 50}


# -- delete


async def test_a_deleted_run_is_not_there_any_more_and_its_rows_go(conn: Connection) -> None:
    await ended(conn)
    await do(conn, Delete())
    with pytest.raises(NonExistentWorkflow, match="there is no run r1"):
        await do(conn, Resume())
    while await runs.purge_gone(conn, 10):
        pass
    assert await contents_of(conn) == {}


async def test_a_delete_ends_what_nobody_owns_and_asks_an_owner_to(conn: Connection) -> None:
    run = await claimed(conn, "owned", **NAMELESS)
    await add_run(conn, "ready", **NAMELESS)
    done = await manage(conn, ["owned", "ready"], Delete())
    assert [(each.status, each.ended) for each in done] == [(RunStatus.RUNNING, False), (RunStatus.CANCELLED, True)]
    ack = await write(conn, run, start())
    assert ack.flags is not None
    assert ack.flags.cancel_mode is CancelMode.IMMEDIATE
    assert (await row(conn, "owned"))["cancel_reason"] == management.DELETED


async def test_a_run_behind_a_resource_is_not_deleted_beside_it(conn: Connection) -> None:
    await add_run(conn, name="order")
    with pytest.raises(InvalidArgument, match="belongs to the resource ns/order: delete that"):
        await do(conn, Delete())
    assert not (await row(conn))["deleted"]


async def test_a_child_is_kept_until_its_parent_was_told_of_its_removal(conn: Connection) -> None:
    await claimed(conn, "parent", **NAMELESS)
    await add_run(conn, "child", **NAMELESS)
    await conn.execute("UPDATE perdure.workflows SET parent_id = 'parent' WHERE id = 'child'")
    await do(conn, Delete(), "child")
    assert await runs.purge_gone(conn, 10) == 0
    await conn.execute("UPDATE perdure.workflows SET parent_told = true WHERE id = 'child'")
    assert await runs.purge_gone(conn, 10) == 1


# -- delay and attributes


async def test_a_run_that_has_not_begun_begins_later(conn: Connection) -> None:
    await add_run(conn, **NAMELESS)
    assert (await do(conn, Delay(60.0))).status is RunStatus.DELAYED
    assert await claim(conn) == []
    waits = json.loads((await row(conn))["waiting_for"])
    assert (waits["kind"], "until" in waits) == ("StartDelayed", True)
    await do(conn, Delay(1.0))
    await let_time_pass(conn, "wake_at", 2)
    await sweeps.wake_due(conn, 10)
    assert (await row(conn))["status"] == RunStatus.ENQUEUED


async def test_an_attempt_that_is_waited_for_can_be_put_off(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=2, **NAMELESS)
    await write(conn, run, ending=Failed(ERROR))
    await do(conn, Delay(3600.0))
    assert await conn.fetchval("SELECT wake_at > now() + interval '59 minutes' AND reopen FROM perdure.workflows")
    assert json.loads((await row(conn))["waiting_for"])["kind"] == "RunRetry"


async def test_a_run_that_has_begun_cannot_be_delayed(conn: Connection) -> None:
    run = await claimed(conn, **NAMELESS)
    with pytest.raises(InvalidArgument, match="run r1 is RUNNING: only a run that has not begun can be delayed"):
        await do(conn, Delay(1.0))
    await write(conn, run, ending=Succeeded("1"))
    with pytest.raises(InvalidArgument, match="SUCCEEDED"):
        await do(conn, Delay(1.0))


async def test_attributes_are_merged_and_none_removes_one(conn: Connection) -> None:
    await ended(conn)
    await do(conn, attributes_of({"a": 1, "b": {"c": 2}}))
    await do(conn, attributes_of({"b": 3, "d": None}))
    assert json.loads((await row(conn))["attributes"]) == {"a": 1, "b": 3}
    await do(conn, attributes_of({"a": None, "b": None}))
    assert (await row(conn))["attributes"] is None


async def test_attributes_that_would_grow_too_large_are_refused_and_the_old_ones_stay(conn: Connection) -> None:
    await add_run(conn, **NAMELESS)
    await do(conn, attributes_of({"a": "x" * 9000}))
    with pytest.raises(InvalidArgument, match="would be 18"):
        await do(conn, attributes_of({"b": "y" * 9000}))
    assert list(json.loads((await row(conn))["attributes"])) == ["a"]


# -- cancel and bulk


async def test_a_cancel_without_cascade_leaves_the_children_alone(conn: Connection) -> None:
    for run_id in ("with", "without"):
        await add_run(conn, run_id, **NAMELESS)
        await add_run(conn, f"child-{run_id}", **NAMELESS)
        await conn.execute("UPDATE perdure.workflows SET parent_id = $1 WHERE id = 'child-' || $1", run_id)
        await conn.execute("UPDATE perdure.workflows SET cascades = true WHERE id = $1", run_id)
    await do(conn, Cancel("why"), "with")
    await do(conn, Cancel("why", cascade=False), "without")
    await wakes.cascade(conn, 10)
    stands = {run_id: (await row(conn, f"child-{run_id}"))["status"] for run_id in ("with", "without")}
    assert stands == {"with": RunStatus.CANCELLED, "without": RunStatus.ENQUEUED}


async def test_a_second_cancel_may_add_the_cascade_and_none_takes_it_away(conn: Connection) -> None:
    await claimed(conn, **NAMELESS)
    await add_run(conn, "child", **NAMELESS)
    await conn.execute("UPDATE perdure.workflows SET parent_id = 'r1' WHERE id = 'child'")
    await conn.execute("UPDATE perdure.workflows SET cascades = true WHERE id = 'r1'")
    seen = []
    for cascade in (False, True, False):
        await do(conn, Cancel("why", CancelMode.IMMEDIATE, cascade))
        seen.append((await row(conn))["cascades"])
    assert seen == [False, True, True]


@pytest.mark.parametrize("verb", [Cancel("why"), Resume(), Delete()], ids=["cancel", "resume", "delete"])
async def test_a_verb_is_done_with_all_runs_or_with_none(conn: Connection, verb: Verb) -> None:
    for run_id in ("b", "a"):
        await failed(conn, run_id)
    if not isinstance(verb, Resume):
        await manage(conn, ["a", "b"], Resume())
    before = await contents_of(conn)
    with pytest.raises(NonExistentWorkflow, match="there is no run missing"):
        await manage(conn, ["a", "b", "missing"], verb)
    assert await contents_of(conn) == before
    assert [each.id for each in await manage(conn, ["b", "a"], verb)] == ["b", "a"]


@pytest.mark.parametrize(
    "verb",
    [Cancel("w"), Resume(), Rewind(Cut.BEGINNING), Fork("f", Cut.BEGINNING), Delete(), Delay(1), SetAttributes("{}")],
    ids=lambda verb: type(verb).__name__,
)
async def test_each_verb_says_that_there_is_no_such_run(conn: Connection, verb: Verb) -> None:
    with pytest.raises(NonExistentWorkflow, match="there is no run r1"):
        await do(conn, verb)
