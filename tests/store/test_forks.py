"""Forks on their rows: where a history is cut, what the new run begins with, and what it leaves to the other."""

import pytest
from perdure.errors import ConflictingWorkflow, InvalidArgument
from perdure.model.management import (
    Cut,
    Fork,
    Managed,
    Rewind,
)
from perdure.model.outcome import Failed, Succeeded
from perdure.model.rows import StepWrite
from perdure.model.states import RunStatus, StepStatus
from perdure.store import runs, sweeps

from tests.store.builders import (
    Connection,
    claimed,
    failure,
    finish,
    let_time_pass,
    row,
    start,
    step_rows,
    write,
)
from tests.store.managebuilders import ERROR, NAMELESS, again, contents_of, do, ended, recorded

# -- where to cut


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        (Cut.BEGINNING, []),
        (Cut.step(1), [0]),
        (Cut.step(3), [0, 1, 2]),
        (Cut.LAST_STEP, [0, 1]),
        (Cut.LAST_FAILURE, [0]),
        (Cut.named("s"), []),
    ],
)
async def test_a_fork_begins_with_the_steps_before_the_cut(conn: Connection, cut: Cut, kept: list[int]) -> None:
    run = await claimed(conn, **NAMELESS)
    steps = [start(0, 1), finish(0, 2), start(1, 3), failure(1, 4), start(2, 5), finish(2, 6)]
    await recorded(conn, run, *steps, ending=Succeeded("1"))
    assert (await do(conn, Fork("f", cut))).id == "f"
    assert [step["step_index"] for step in await step_rows(conn, "f")] == kept


@pytest.mark.parametrize("cut", [Cut.LAST_FAILURE, Cut.named("nobody"), Cut.step(4)])
async def test_a_cut_where_there_is_no_such_step_is_refused_and_changes_nothing(conn: Connection, cut: Cut) -> None:
    await ended(conn)
    before = await contents_of(conn)
    for verb in (Fork("f", cut), Rewind(cut)):
        with pytest.raises(InvalidArgument, match="run r1 has recorded no step"):
            await do(conn, verb)
    assert await contents_of(conn) == before


# -- fork


async def test_a_fork_is_a_run_of_its_own_that_remembers_where_it_comes_from(conn: Connection) -> None:
    await ended(conn, input='["in"]', priority=7, partition_key="p", max_recoveries=4)
    await conn.execute("UPDATE perdure.workflows SET attributes = '{\"a\": 1}', deduplication_id = 'd'")
    made = await do(conn, Fork("f", Cut.step(2)))
    assert made == Managed("f", RunStatus.ENQUEUED, "ns", "default", ready=True)
    stored, original = await row(conn, "f"), await row(conn)
    same = ("namespace", "workflow", "requires", "pool", "queue", "priority", "partition_key", "max_recoveries")
    assert [stored[name] for name in (*same, "attributes")] == [original[name] for name in (*same, "attributes")]
    own = ("name", "version", "parent_id", "deduplication_id", "deadline_at", "started_at", "forked_from", "forked_at")
    assert [stored[name] for name in own] == [None] * 6 + ["r1", 2]
    taken = await again(conn, "f")
    assert (taken.input, taken.stem) == ('["in"]', "f")
    assert [(step.index, step.output) for step in taken.steps] == [(0, "0"), (1, "1")]
    await recorded(conn, taken, start(2), finish(2), ending=Succeeded("1"))
    assert await runs.get_status(conn, "f") is RunStatus.SUCCEEDED
    assert original["status"] == RunStatus.SUCCEEDED


async def test_a_fork_of_a_running_run_takes_what_has_ended_and_leaves_the_run_alone(conn: Connection) -> None:
    run = await claimed(conn, **NAMELESS)
    sleep = StepWrite(1, 3, "perdure.sleep", StepStatus.WAITING, "[60.0]", wake_in=60.0)
    await recorded(conn, run, start(0, 1), finish(0, 2), sleep, start(2, 4))
    await do(conn, Fork("f", Cut.step(3)))
    taken = await again(conn, "f")
    assert [(step.index, step.status) for step in taken.steps] == [(0, 30), (1, 15)]
    assert taken.steps[1].wake_in == pytest.approx(60, abs=20)
    assert (await write(conn, run, finish(2, 5), ending=Succeeded("1"))).ended is RunStatus.SUCCEEDED


async def test_a_failure_that_was_caught_stays_an_outcome_in_a_fork_that_is_retried(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=2, **NAMELESS)
    steps = [start(0, 1), failure(0, 2), start(1, 3), finish(1, 4)]
    await recorded(conn, run, *steps, ending=Succeeded("1"))
    await do(conn, Fork("f", Cut.step(2)))
    taken = await again(conn, "f")
    await recorded(conn, taken, start(2, 1), failure(2, 2), ending=Failed(ERROR))
    await let_time_pass(conn, "wake_at", 100)
    await sweeps.wake_due(conn, 10)
    assert [step["status"] for step in await step_rows(conn, "f")] == [40, 30, 20]


async def test_a_fork_has_the_events_streams_and_read_messages_of_the_steps_that_it_begins_with(
    conn: Connection,
) -> None:
    await ended(conn)
    await conn.execute(
        "INSERT INTO perdure.messages (workflow_id, topic, key, value, consumed_by) VALUES"
        " ('r1', 't', 'a', '1', 0), ('r1', 't', 'b', '2', 2), ('r1', 't', 'c', '3', NULL);"
        "INSERT INTO perdure.events_history (workflow_id, step_index, name, value, set_at) VALUES"
        " ('r1', 0, 'e', '1', '2020-01-01'), ('r1', 1, 'e', '2', '2020-01-02'), ('r1', 2, 'e', '3', '2020-01-03');"
        "INSERT INTO perdure.streams (workflow_id, key, length, closed_by) VALUES"
        " ('r1', 'a', 2, 1), ('r1', 'b', 1, NULL);"
        'INSERT INTO perdure.stream_values (workflow_id, key, "offset", value, step_index) VALUES'
        " ('r1', 'a', 0, '0', 2), ('r1', 'a', 1, '1', 0), ('r1', 'b', 0, '0', 2)"
    )
    await do(conn, Fork("f", Cut.step(2)))
    inbox = await conn.fetch("SELECT key, consumed_by FROM perdure.messages WHERE workflow_id = 'f'")
    assert [tuple(each) for each in inbox] == [("a", 0)]
    assert await conn.fetchval("SELECT value FROM perdure.events WHERE workflow_id = 'f' AND name = 'e'") == "2"
    assert await conn.fetchval("SELECT count(*) FROM perdure.events_history WHERE workflow_id = 'f'") == 2
    streams = await conn.fetch("SELECT key, length, closed_by FROM perdure.streams WHERE workflow_id = 'f'")
    assert [tuple(each) for each in streams] == [("a", 1, 1)]
    values = await conn.fetch("SELECT \"offset\", value FROM perdure.stream_values WHERE workflow_id = 'f'")
    assert [tuple(each) for each in values] == [(0, "1")]


async def with_child(conn: Connection) -> None:
    """A run that has started a child at its first step and waited for it at its second."""
    run = await claimed(conn, **NAMELESS)
    child = StepWrite(0, 1, "perdure.start", StepStatus.SUCCEEDED, "[]", '"child"')
    result = StepWrite(1, 2, "perdure.result", StepStatus.SUCCEEDED, '["child"]', "1")
    await recorded(conn, run, child, result, start(2, 3), finish(2, 4), ending=Succeeded("1"))


async def test_a_fork_with_a_replaced_child_waits_for_the_new_one(conn: Connection) -> None:
    await with_child(conn)
    await do(conn, Fork("f", Cut.step(2), (("child", "better"),)))
    assert [(step["step_index"], step["output"]) for step in await step_rows(conn, "f")] == [(0, '"better"')]


async def test_a_child_that_is_replaced_must_be_one_of_those_that_are_kept(conn: Connection) -> None:
    await with_child(conn)
    for cut, old in ((Cut.step(2), "nobody"), (Cut.BEGINNING, "child")):
        with pytest.raises(InvalidArgument, match=f"{old} is no child that run r1 has started before index"):
            await do(conn, Fork("f", cut, ((old, "better"),)))
    assert await runs.get_status(conn, "f") is None


async def test_the_same_fork_made_again_is_the_same_run_and_another_with_its_id_is_refused(conn: Connection) -> None:
    await ended(conn)
    await do(conn, Fork("f", Cut.step(1)))
    before = await contents_of(conn)
    assert await do(conn, Fork("f", Cut.step(1))) == Managed("f", RunStatus.ENQUEUED, "ns", "default")
    for verb in (Fork("f", Cut.step(2)), Fork("r1", Cut.step(1))):
        with pytest.raises(ConflictingWorkflow):
            await do(conn, verb)
    assert await contents_of(conn) == before
