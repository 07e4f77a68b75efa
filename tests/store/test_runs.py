import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from perdure.model.outcome import ErrorRecord, Failed, Parked, Succeeded
from perdure.model.rows import WaitingFor
from perdure.model.states import CancelMode, RunStatus
from perdure.store import backlog, runs
from perdure.store.pool import connect
from perdure.store.runs import Upserted

from tests.store.builders import (
    Connection,
    add_run,
    claim,
    claimed,
    everything,
    finish,
    let_time_pass,
    new_run,
    row,
    start,
    write,
)
from tests.support.pgwait import race

ENQUEUED, RUNNING, CANCELLED = RunStatus.ENQUEUED, RunStatus.RUNNING, RunStatus.CANCELLED


async def brought_to(conn: Connection, status: RunStatus, **fields: Any) -> None:
    """A run `r1` of generation 1 in that status."""
    fields = {"generation": 1, "max_run_attempts": 2, **fields}
    if status is ENQUEUED:
        await add_run(conn, **fields)
        return
    if status is RunStatus.FAILED:
        fields["max_run_attempts"] = 1
    run = await claimed(conn, **fields)
    match status:
        case RunStatus.WAITING:
            await write(conn, run, ending=Parked(WaitingFor("x"), 100.0))
        case RunStatus.DELAYED | RunStatus.FAILED:
            await write(conn, run, ending=Failed(ErrorRecord("E", "m")))
        case RunStatus.SUCCEEDED:
            await write(conn, run, ending=Succeeded("1"))
        case RunStatus.CANCELLED:
            await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "before")
            await conn.execute(
                "UPDATE perdure.workflows SET status = 70, worker_id = NULL, fence = 2, finished_at = now()"
            )
        case RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED:
            await conn.execute(
                "UPDATE perdure.workflows SET status = 80, worker_id = NULL, fence = 2, finished_at = now()"
            )
    assert (await row(conn))["status"] == status


async def test_upsert_creates_the_run_with_its_payload(conn: Connection) -> None:
    run = new_run(input='{"n": 1}', definition="{}", priority=7, timeout=timedelta(minutes=1), generation=3)

    assert await runs.upsert(conn, run) == Upserted(True, True, ENQUEUED, 3)

    stored = await row(conn)
    assert (stored["priority"], stored["timeout"], stored["edits"], stored["fence"]) == (7, timedelta(minutes=1), 0, 0)
    assert stored["status_due_at"] is not None
    payload = await conn.fetchrow("SELECT * FROM perdure.workflow_payloads")
    assert (payload["input"], payload["definition"]) == ('{"n": 1}', "{}")


async def test_the_same_content_twice_is_no_edit(conn: Connection) -> None:
    await runs.upsert(conn, new_run(generation=1))
    before = await everything(conn)

    assert await runs.upsert(conn, new_run(generation=1)) == Upserted(False, False, ENQUEUED, 1)

    assert await everything(conn) == before


@pytest.mark.parametrize(
    "change",
    [{"priority": 1}, {"timeout": timedelta(hours=1)}, {"suspended": True}, {"max_recoveries": 3}, {}],
)
async def test_a_newer_generation_changes_what_may_change(conn: Connection, change: dict[str, Any]) -> None:
    await runs.upsert(conn, new_run(generation=1))
    await conn.execute("UPDATE perdure.workflows SET status_due_at = NULL")

    assert await runs.upsert(conn, new_run(generation=2, **change)) == Upserted(False, True, ENQUEUED, 2)

    stored = await row(conn)
    assert (stored["edits"], stored["generation"], stored["fence"]) == (1, 2, 0)
    assert stored["status_due_at"] is not None
    for name, value in change.items():
        assert stored[name] == value


async def test_what_defines_the_run_never_changes(conn: Connection) -> None:
    await runs.upsert(conn, new_run(generation=1))
    before = (await everything(conn))[1]

    await runs.upsert(conn, new_run(generation=2, workflow="y", input='{"n": 2}', pool="p", queue="q"))

    stored = await row(conn)
    assert (stored["workflow"], stored["pool"], stored["queue"]) == ("x", "default", "default")
    assert (await everything(conn))[1] == before


async def test_an_older_generation_undoes_nothing(conn: Connection) -> None:
    """A slow reconcile arrives after a newer one."""
    await runs.upsert(conn, new_run(generation=5, suspended=True, priority=1))
    before = await everything(conn)

    older = new_run(generation=4, cancel_mode=CancelMode.IMMEDIATE)
    assert await runs.upsert(conn, older) == Upserted(False, False, ENQUEUED, 5)

    assert await everything(conn) == before


async def test_an_older_generation_behind_a_newer_one_undoes_nothing(conn: Connection, pg_url: str) -> None:
    await runs.upsert(conn, new_run(generation=1))
    newer = "UPDATE perdure.workflows SET generation = 3, priority = 1, edits = edits + 1"

    answer = await race(pg_url, (newer,), runs.upsert(conn, new_run(generation=2, priority=9)))

    assert answer == Upserted(False, False, ENQUEUED, 3)
    assert (await row(conn))["priority"] == 1


async def test_twins_create_one_run(conn: Connection, pg_url: str) -> None:
    """Two operators at once."""
    sessions = [await connect(pg_url, application_name=f"o{n}") for n in range(4)]
    try:
        answers = await asyncio.gather(*(runs.upsert(each, new_run(generation=1)) for each in sessions))
    finally:
        for each in sessions:
            await each.close()

    assert sorted(answer.created for answer in answers) == [False, False, False, True]
    assert {answer.status for answer in answers} == {ENQUEUED}
    assert [len(rows) for rows in await everything(conn)] == [1, 1, 0]


async def test_a_finished_run_takes_the_generation_and_keeps_its_outcome(conn: Connection) -> None:
    await brought_to(conn, RunStatus.SUCCEEDED)
    await conn.execute("UPDATE perdure.workflows SET status_due_at = NULL")

    answer = await runs.upsert(conn, new_run(generation=2, cancel_mode=CancelMode.IMMEDIATE, suspended=True))

    assert answer == Upserted(False, True, RunStatus.SUCCEEDED, 2)
    stored = await row(conn)
    assert (stored["generation"], stored["cancel_mode"], stored["fence"]) == (2, None, 2)
    assert stored["status_due_at"] is not None


async def test_a_new_timeout_counts_from_the_first_claim(conn: Connection) -> None:
    await claimed(conn, generation=1, timeout=timedelta(hours=1))
    await runs.upsert(conn, new_run(generation=2, timeout=timedelta(hours=2)))
    stored = await row(conn)
    assert stored["deadline_at"] - stored["started_at"] == timedelta(hours=2)

    await runs.upsert(conn, new_run(generation=3, timeout=None))
    assert (await row(conn))["deadline_at"] is None


async def test_resume_forgets_why_it_waited_and_the_claim_takes_it(conn: Connection) -> None:
    run = await claimed(conn, generation=1)
    await runs.upsert(conn, new_run(generation=2, suspended=True))
    await write(conn, run, ending=Parked(WaitingFor("x"), -1.0))
    await conn.execute("UPDATE perdure.workflows SET status = 10, wake_at = NULL")
    await let_time_pass(conn, "waiting_since", 10)
    await backlog.set_waiting(conn, [("r1", run.fence + 1, WaitingFor("Suspended"))])
    assert await claim(conn) == []

    await runs.upsert(conn, new_run(generation=3, suspended=False))

    assert (await row(conn))["waiting_for"] is None
    assert len(await claim(conn)) == 1


async def test_a_run_created_with_a_cancel_never_starts(conn: Connection) -> None:
    answer = await runs.upsert(conn, new_run(cancel_mode=CancelMode.GRACEFUL))

    assert answer == Upserted(True, True, CANCELLED, 0)
    assert (await row(conn))["finished_at"] is not None


UNOWNED = [ENQUEUED, RunStatus.DELAYED, RunStatus.WAITING]
ENDED = [RunStatus.SUCCEEDED, RunStatus.FAILED, CANCELLED, RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED]


@pytest.mark.parametrize("by", ["verb", "resource", "gone"])
@pytest.mark.parametrize("status", UNOWNED)
async def test_cancel_ends_at_once_what_nobody_owns(conn: Connection, status: RunStatus, by: str) -> None:
    await brought_to(conn, status)
    fence = (await row(conn))["fence"]

    await cancelled_by(conn, by)

    stored = await row(conn)
    assert (stored["status"], stored["fence"]) == (CANCELLED, fence + 1)
    assert stored["finished_at"] is not None
    assert (stored["waiting_for"], stored["wake_at"]) == (None, None)
    assert stored["cancel_reason"]


@pytest.mark.parametrize("by", ["verb", "resource", "gone"])
async def test_cancel_is_a_flag_for_an_owner(conn: Connection, by: str) -> None:
    await brought_to(conn, RUNNING)

    await cancelled_by(conn, by)

    stored = await row(conn)
    assert (stored["status"], stored["cancel_mode"], stored["edits"]) == (RUNNING, CancelMode.IMMEDIATE, 1)
    assert (stored["fence"], stored["worker_id"]) == (1, "w1")


@pytest.mark.parametrize("by", ["verb", "resource", "gone"])
@pytest.mark.parametrize("status", ENDED)
async def test_cancel_after_the_end_changes_no_outcome(conn: Connection, status: RunStatus, by: str) -> None:
    await brought_to(conn, status)
    before = await row(conn)

    await cancelled_by(conn, by)

    stored = await row(conn)
    unchanged = ("status", "fence", "finished_at", "cancel_mode", "cancel_reason")
    assert [stored[name] for name in unchanged] == [before[name] for name in unchanged]


async def cancelled_by(conn: Connection, by: str) -> None:
    match by:
        case "verb":
            await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "why")
        case "resource":
            await runs.upsert(conn, replace(new_run(), generation=2, cancel_mode=CancelMode.IMMEDIATE))
        case _:
            assert await runs.resource_gone(conn, ["r1", "unknown", "r1"]) == 1
            assert await runs.resource_gone(conn, ["r1"]) == 0


async def test_a_cancel_only_gets_stronger(conn: Connection) -> None:
    await brought_to(conn, RUNNING)
    for mode, expected, edits in (
        (CancelMode.GRACEFUL, CancelMode.GRACEFUL, 1),
        (CancelMode.GRACEFUL, CancelMode.GRACEFUL, 1),
        (CancelMode.IMMEDIATE, CancelMode.IMMEDIATE, 2),
        (CancelMode.GRACEFUL, CancelMode.IMMEDIATE, 2),
    ):
        assert await runs.cancel(conn, "r1", mode, mode) is RUNNING
        stored = await row(conn)
        assert (stored["cancel_mode"], stored["edits"]) == (expected, edits)
    assert stored["cancel_reason"] == "Graceful"
    # Nor does a resource take it back or weaken it.
    await runs.upsert(conn, new_run(generation=2))
    await runs.upsert(conn, new_run(generation=3, cancel_mode=CancelMode.GRACEFUL))
    assert (await row(conn))["cancel_mode"] == CancelMode.IMMEDIATE


async def test_there_is_no_run_to_cancel(conn: Connection) -> None:
    assert await runs.cancel(conn, "unknown", CancelMode.GRACEFUL, "why") is None
    assert await runs.get_status(conn, "unknown") is None
    assert await runs.result(conn, "unknown") is None


async def test_a_gone_run_is_not_revived_by_a_stale_reconcile(conn: Connection) -> None:
    await add_run(conn, generation=1)
    await runs.resource_gone(conn, ["r1"])
    before = await everything(conn)

    assert not (await runs.upsert(conn, new_run(generation=9))).changed

    assert await everything(conn) == before


async def test_gone_runs_are_removed_with_all_they_had_once_they_have_ended(conn: Connection) -> None:
    for name in ("ended", "owned", "kept"):
        run = await claimed(conn, name)
        await write(conn, run, start(), finish(1, 2), ending=None if name == "owned" else Succeeded("1"))
    await runs.resource_gone(conn, ["ended", "owned"])

    assert await runs.purge_gone(conn, 10) == 1
    assert await runs.purge_gone(conn, 10) == 0

    tables = await everything(conn)
    assert [{each[0] for each in rows} for rows in tables] == [{"owned", "kept"}] * 3


async def test_removal_is_bounded_in_runs_and_steps(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PURGE_STEPS", 3)
    for name in ("a", "b", "c"):
        run = await claimed(conn, name)
        await write(conn, run, *(start(n, n + 1) for n in range(2)), ending=Succeeded("1"))
    await runs.resource_gone(conn, ["a", "b", "c"])

    assert await runs.purge_gone(conn, 2) == 1
    assert len((await everything(conn))[2]) == 3
    removed = [await runs.purge_gone(conn, 2) for _ in range(3)]
    assert sum(removed) == 2
    assert await everything(conn) == [[], [], []]


async def test_ghosts_are_searched_page_by_page(conn: Connection) -> None:
    for name in ("a", "b", "c", "d"):
        await add_run(conn, name)
    await add_run(conn, "client", name=None)
    await add_run(conn, "elsewhere", namespace="other")
    await runs.resource_gone(conn, ["b"])

    assert await runs.resource_ids(conn, "ns", "", 2) == ["a", "c"]
    assert await runs.resource_ids(conn, "ns", "c", 2) == ["d"]
    assert await runs.resource_ids(conn, "ns", "d", 2) == []
    assert await runs.resource_ids(conn, "other", "", 2) == ["elsewhere"]


async def test_a_payload_that_cannot_be_stored_leaves_no_run(conn: Connection) -> None:
    with pytest.raises(asyncpg.CharacterNotInRepertoireError):
        await runs.upsert(conn, new_run(input='"\x00"'))
    assert await everything(conn) == [[], [], []]
