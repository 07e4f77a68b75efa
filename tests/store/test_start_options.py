"""What a start may say beside the queue, on rows: duplicates, attributes, deadlines of children, runs that go again."""

import json
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from perdure.model.listing import RunFilter, RunQuery
from perdure.model.management import Cut, Fork
from perdure.model.outcome import ErrorRecord, Failed
from perdure.model.serialization import Serialization
from perdure.model.start import NO_TIMEOUT
from perdure.model.states import CancelMode, RunStatus
from perdure.store import clients, listing, runs, sweeps, wakes
from perdure.store.clients import Holder, RunStart
from perdure.store.management import manage

from tests.store.builders import (
    Connection,
    add_worker,
    claim,
    claimed,
    everything,
    failure,
    finish,
    row,
    step_rows,
    write,
)
from tests.store.callbuilders import execute, one, start_child
from tests.support.pgwait import race

ERROR = ErrorRecord("ValueError", "no")


def run_start(run_id: str = "r1", **fields: Any) -> RunStart:
    values: dict[str, Any] = {"workflow": "x", "input": "[1]", "pool": "default", "queue": "default", "priority": 100}
    return RunStart(id=run_id, **{**values, **fields})


async def begin(conn: Connection, *starts: RunStart, namespace: str = "ns") -> set[str]:
    return await clients.start(conn, namespace, starts, awaited=False)


async def status(conn: Connection, run_id: str = "r1") -> RunStatus:
    return RunStatus((await row(conn, run_id))["status"])


# -- how values are written


async def test_how_a_run_is_written_is_with_it_wherever_it_was_started(conn: Connection) -> None:
    portable, native = Serialization.PORTABLE, Serialization.NATIVE
    await add_worker(conn)
    await begin(conn, run_start("r1", serialization=portable), run_start("r2"))
    seen = await listing.page(conn, RunQuery("ns", RunFilter()))
    assert {run.id: run.serialization for run in seen.runs} == {"r1": portable, "r2": None}
    found = {run.id: run.serialization for run in await claim(conn)}
    assert found == {"r1": portable, "r2": None}
    here = await clients.start_here(conn, "w1", "", "ns", run_start("r3", serialization=native))
    assert here is not None
    assert here.serialization is native


async def test_how_a_child_is_written_is_as_its_start_says(conn: Connection) -> None:
    run = await claimed(conn)
    await one(conn, run, start_child(serialization="native"))
    [child] = await claim(conn)
    assert child.serialization is Serialization.NATIVE


async def test_a_fork_is_written_as_the_run_it_is_made_of(conn: Connection) -> None:
    await add_worker(conn)
    await begin(conn, run_start("r1", serialization=Serialization.PORTABLE))
    await manage(conn, ["r1"], Fork("f", Cut.BEGINNING))
    found = {run.id: run.serialization for run in await claim(conn)}
    assert found == {"r1": Serialization.PORTABLE, "f": Serialization.PORTABLE}


async def test_a_choice_that_nobody_knows_is_not_stored(conn: Connection) -> None:
    await begin(conn, run_start("r1"))
    with pytest.raises(asyncpg.CheckViolationError):
        await conn.execute("UPDATE perdure.workflows SET serialization = 3")


# -- duplicates


async def test_a_deduplication_id_is_held_until_the_run_has_ended(conn: Connection) -> None:
    assert await begin(conn, run_start("r1", deduplication_id="d")) == {"r1"}
    assert await begin(conn, run_start("r2", deduplication_id="d")) == set()
    held = await clients.holders(conn, "ns", [("other", "d"), ("default", "d"), ("default", "e")])
    assert held == {("default", "d"): Holder("r1", "x")}

    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "no")
    assert await clients.holders(conn, "ns", [("default", "d")]) == {}
    assert await begin(conn, run_start("r2", deduplication_id="d")) == {"r2"}


async def test_a_deduplication_id_is_held_in_one_queue_of_one_namespace(conn: Connection) -> None:
    await begin(conn, run_start("r1", deduplication_id="d"))
    assert await begin(conn, run_start("r2", deduplication_id="d", queue="q")) == {"r2"}
    assert await begin(conn, run_start("r3", deduplication_id="d"), namespace="other") == {"r3"}


async def test_of_one_list_the_first_gets_the_deduplication_id(conn: Connection) -> None:
    assert await begin(conn, run_start("r1", deduplication_id="d"), run_start("r2", deduplication_id="d")) == {"r1"}
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflow_payloads") == 1


async def test_of_two_that_want_a_deduplication_id_at_once_one_gets_it(conn: Connection, pg_url: str) -> None:
    insert = (
        "INSERT INTO perdure.workflows (id, namespace, workflow, requires, pool, queue, priority, status,"
        " deduplication_id) VALUES ('r1', 'ns', 'x', '{workflow:x}', 'default', 'default', 100, 10, 'd')"
    )
    assert await race(pg_url, (insert,), begin(conn, run_start("r2", deduplication_id="d"))) == set()


async def test_a_run_is_not_started_here_when_its_deduplication_id_is_held(conn: Connection) -> None:
    await add_worker(conn)
    await begin(conn, run_start("r1", deduplication_id="d"))
    before = await everything(conn)
    assert await clients.start_here(conn, "w1", "", "ns", run_start("r2", deduplication_id="d")) is None
    assert await everything(conn) == before


async def test_a_child_whose_deduplication_id_is_held_is_not_started_and_its_holder_is_found(conn: Connection) -> None:
    run = await claimed(conn, queue="q")
    await begin(conn, run_start("held", deduplication_id="d", queue="q"))
    assert not (await one(conn, run, start_child(deduplication_id="d"))).done
    assert await step_rows(conn) == []
    assert await clients.holder_for_child(conn, "r1", None, "d") == Holder("held", "x")
    assert await clients.holder_for_child(conn, "r1", "other", "d") is None
    assert (await one(conn, run, start_child(0, 2, deduplication_id="d", queue="other"))).done
    assert (await row(conn, "r1-0"))["deduplication_id"] == "d"


# -- what is recorded with a run


async def test_attributes_token_and_attempts_are_those_of_the_start(conn: Connection) -> None:
    wanted = {"attributes": '{"tenant": "acme", "n": [1]}', "token": 7, "max_run_attempts": 5}
    await begin(conn, run_start("r1", **wanted))
    await add_worker(conn)
    assert (await clients.start_here(conn, "w1", "", "ns", run_start("r2", **wanted))).max_run_attempts == 5  # type: ignore[union-attr]
    for run_id in ("r1", "r2"):
        found = await row(conn, run_id)
        assert json.loads(found["attributes"]) == {"tenant": "acme", "n": [1]}
        assert (found["start_token"], found["max_run_attempts"]) == (7, 5)
    [run] = await claim(conn)
    assert run.max_run_attempts == 5


async def test_a_child_has_the_attributes_of_its_start_and_not_of_its_parent(conn: Connection) -> None:
    run = await claimed(conn)
    await conn.execute("UPDATE perdure.workflows SET attributes = '{\"a\": 1}'")
    await execute(conn, run, start_child(0, 1, attributes={"b": 2}), start_child(1, 2))
    assert json.loads((await row(conn, "r1-0"))["attributes"]) == {"b": 2}
    assert (await row(conn, "r1-1"))["attributes"] is None


async def test_the_place_in_the_queue_is_that_of_the_statement_and_not_of_its_transaction(conn: Connection) -> None:
    async with conn.transaction():
        began = await conn.fetchval("SELECT clock_timestamp()")
        await begin(conn, run_start())
    assert (await row(conn))["run_at"] > began


# -- deadlines


@pytest.mark.parametrize(
    ("said", "inherits", "own"),
    [
        (None, True, None),
        (NO_TIMEOUT, False, None),
        (7200, False, timedelta(hours=2)),
        (1, False, timedelta(seconds=1)),
    ],
    ids=["inherit", "none", "longer", "shorter"],
)
async def test_the_timeout_of_a_child_is_inherited_or_none_or_its_own(
    conn: Connection, said: Any, inherits: bool, own: timedelta | None
) -> None:
    run = await claimed(conn, timeout=timedelta(hours=1))
    await one(conn, run, start_child(timeout=said))
    parent, child = await row(conn), await row(conn, "r1-0")
    assert child["deadline_at"] == (parent["deadline_at"] if inherits else None)
    assert (child["deadline_inherited"], child["timeout"]) == (inherits, own)


async def test_without_a_deadline_there_is_none_to_inherit(conn: Connection) -> None:
    run = await claimed(conn)
    await one(conn, run, start_child())
    child = await row(conn, "r1-0")
    assert (child["deadline_at"], child["deadline_inherited"]) == (None, False)


async def test_a_deadline_ends_those_who_have_inherited_it_at_every_level_and_no_others(conn: Connection) -> None:
    run = await claimed(conn, timeout=timedelta(hours=1))
    await execute(
        conn,
        run,
        start_child(0, 1, queue="q"),
        start_child(1, 2, timeout=NO_TIMEOUT, queue="later"),
        start_child(2, 3, timeout=7200, queue="later"),
    )
    [child] = await claim(conn, queue="q")
    again, alone = start_child(0, 1, "g-inherits", queue="later"), start_child(1, 2, "g-none", timeout=NO_TIMEOUT)
    await execute(conn, child, again, alone)
    await conn.execute("UPDATE perdure.workflows SET deadline_at = now() WHERE id = 'r1'")

    assert [each.id for each in await sweeps.cancel_overdue(conn, 10)] == ["r1"]
    while await wakes.cascade(conn, 10):
        pass

    causes = {each: (await row(conn, each))["cancel_cause"] for each in ("r1", "r1-0", "g-inherits")}
    assert causes == {"r1": 1, "r1-0": 1, "g-inherits": 1}
    assert await status(conn, "g-inherits") is RunStatus.CANCELLED
    assert "deadline" in (await row(conn, "g-inherits"))["cancel_reason"]
    for untouched in ("r1-1", "r1-2", "g-none"):
        assert (await row(conn, untouched))["cancel_mode"] is None, untouched


async def test_a_cancel_in_the_words_of_a_deadline_is_a_cancel(conn: Connection) -> None:
    run = await claimed(conn, timeout=timedelta(hours=1))
    await one(conn, run, start_child(timeout=NO_TIMEOUT))
    await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "its deadline has passed")
    assert await wakes.cascade(conn, 10) == 1
    assert await status(conn, "r1-0") is RunStatus.CANCELLED


# -- again


async def failed(conn: Connection) -> None:
    """A run whose second step has failed, and with it the run."""
    run = await claimed(conn)
    await write(conn, run, finish(0, 1), failure(1, 2), ending=Failed(ERROR))
    assert await status(conn) is RunStatus.FAILED


async def test_a_run_that_has_failed_goes_again_with_its_finished_steps_and_counts_that_begin_anew(
    conn: Connection,
) -> None:
    await failed(conn)
    fence = (await row(conn))["fence"]
    assert await clients.rerun(conn, "r1", 7) == ("ns", "default")

    found = await row(conn)
    assert (found["status"], found["fence"], found["start_token"]) == (RunStatus.ENQUEUED, fence + 1, 7)
    assert (found["run_attempts"], found["recoveries"], found["version"], found["finished_at"]) == (0, 0, None, None)
    [run] = await claim(conn)
    assert [(each.status, each.attempts) for each in run.steps] == [(30, 0), (20, 0)]
    assert "no" in str(run.steps[1].attempt_errors)


async def test_a_run_that_was_parked_after_its_recoveries_goes_again(conn: Connection) -> None:
    await claimed(conn)
    await conn.execute(
        "UPDATE perdure.workflows SET status = 80, worker_id = NULL, recoveries = 11, finished_at = now()"
    )
    assert await clients.rerun(conn, "r1", 7) is not None
    assert (await claim(conn))[0].recoveries == 0


async def test_a_start_runs_again_once(conn: Connection) -> None:
    """The answer may be lost, and the run have failed once more before it is asked for again."""
    await failed(conn)
    await clients.rerun(conn, "r1", 7)
    [run] = await claim(conn)
    await write(conn, run, ending=Failed(ERROR))
    assert await clients.rerun(conn, "r1", 7) is None
    assert await clients.rerun(conn, "r1", 8) is not None


@pytest.mark.parametrize("status", [10, 20, 30, 40, 50, 70])
async def test_what_has_not_failed_does_not_go_again(conn: Connection, status: int) -> None:
    await claimed(conn)
    await conn.execute(
        "UPDATE perdure.workflows SET status = $1::smallint, worker_id = CASE WHEN $1::smallint = 30 THEN 'w1' END,"
        " finished_at = CASE WHEN $1::smallint >= 50 THEN now() END",
        status,
    )
    before = await everything(conn)
    assert await clients.rerun(conn, "r1", 7) is None
    assert await clients.rerun(conn, "nobody", 7) is None
    assert await everything(conn) == before


async def test_what_goes_again_has_given_up_its_deduplication_id(conn: Connection) -> None:
    await failed(conn)
    await conn.execute("UPDATE perdure.workflows SET deduplication_id = 'd'")
    assert await begin(conn, run_start("r2", deduplication_id="d")) == {"r2"}
    assert await clients.rerun(conn, "r1", 7) is not None
