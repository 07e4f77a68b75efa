"""Debounced starts on rows: what is postponed, what is new, what is sent again, and who comes at the same time."""

import asyncio
from typing import Any

import pytest
from perdure.model.states import CancelMode, RunStatus
from perdure.store import debounce as store
from perdure.store import runs, sweeps
from perdure.store.clients import RunStart
from perdure.store.debounce import CALLS_KEPT, FORGET_SECONDS, Debounce
from perdure.store.pool import connect

from tests.store.builders import Connection, add_worker, claim, let_time_pass, row
from tests.support.pgwait import holding, waiting


def asked(
    run_id: str = "r1",
    value: str = "[1]",
    *,
    key: str = "k",
    call: str = "",
    delay: float = 60.0,
    cap: float | None = None,
    **run: Any,
) -> Debounce:
    fields: dict[str, Any] = {"workflow": "x", "pool": "default", "queue": "default", "priority": 100, **run}
    return Debounce(RunStart(id=run_id, input=value, **fields), key, call or run_id, delay, cap)


async def debounce(conn: Connection, *calls: Debounce) -> list[str]:
    return [await store.debounce(conn, "ns", each) for each in calls]


async def input_of(conn: Connection, run_id: str) -> str:
    found = await conn.fetchval("SELECT input FROM perdure.workflow_payloads WHERE workflow_id = $1", run_id)
    return str(found)


async def seconds_left(conn: Connection, run_id: str = "r1") -> float:
    found = await conn.fetchval(
        "SELECT extract(epoch FROM wake_at - clock_timestamp())::float8 FROM perdure.workflows WHERE id = $1", run_id
    )
    return float(found)


async def become_due(conn: Connection, run_id: str = "r1") -> None:
    await let_time_pass(conn, "wake_at", 10_000, run_id)
    await sweeps.wake_due(conn, 10)
    assert (await row(conn, run_id))["status"] == RunStatus.ENQUEUED


async def test_the_first_call_makes_a_delayed_run(conn: Connection) -> None:
    assert await debounce(conn, asked(queue="q", priority=7, attributes='{"a": 1}')) == ["r1"]
    made = await row(conn)
    assert (made["status"], made["queue"], made["priority"], made["attributes"]) == (20, "q", 7, '{"a": 1}')
    assert 50 < await seconds_left(conn) <= 60


async def test_a_further_call_postpones_it_and_replaces_its_input(conn: Connection) -> None:
    await debounce(conn, asked())
    before = await row(conn)
    await let_time_pass(conn, "wake_at", 50, "r1")
    assert await debounce(conn, asked("r2", "[2]")) == ["r1"]
    assert 50 < await seconds_left(conn) <= 60
    assert await input_of(conn, "r1") == "[2]"
    after = await row(conn)
    assert after["run_at"] == after["wake_at"]
    assert after["fence"] == before["fence"] + 1
    assert await runs.get_status(conn, "r2") is None


async def test_the_cap_counts_from_the_first_call(conn: Connection) -> None:
    await debounce(conn, asked(delay=20, cap=30))
    await let_time_pass(conn, "created_at", 25, "r1")
    await debounce(conn, asked("r2", delay=20, cap=30))
    assert await seconds_left(conn) <= 5


async def test_past_its_cap_a_run_is_due_at_once_with_the_latest_input(conn: Connection) -> None:
    await debounce(conn, asked(delay=20, cap=30))
    await let_time_pass(conn, "created_at", 100, "r1")
    await debounce(conn, asked("r2", "[2]", delay=20, cap=30))
    await sweeps.wake_due(conn, 10)
    assert (await row(conn))["status"] == RunStatus.ENQUEUED
    assert await input_of(conn, "r1") == "[2]"


@pytest.mark.parametrize("differs", [{"key": "k2"}, {"workflow": "y"}])
async def test_another_key_or_workflow_is_another_run(conn: Connection, differs: dict[str, str]) -> None:
    assert await debounce(conn, asked(), asked("r2", **differs)) == ["r1", "r2"]  # type: ignore[arg-type]


async def test_another_namespace_is_another_run(conn: Connection) -> None:
    await debounce(conn, asked())
    assert await store.debounce(conn, "other", asked("r2")) == "r2"


async def test_a_run_that_has_become_claimable_is_left_alone_and_a_new_one_is_made(conn: Connection) -> None:
    await debounce(conn, asked())
    await become_due(conn)
    assert await debounce(conn, asked("r2", "[2]"), asked("r3", "[3]")) == ["r2", "r2"]
    assert [await input_of(conn, each) for each in ("r1", "r2")] == ["[1]", "[3]"]


async def test_a_run_that_waits_for_another_attempt_is_not_postponed(conn: Connection) -> None:
    await debounce(conn, asked())
    await become_due(conn)
    await add_worker(conn)
    [run] = await claim(conn)
    assert run.id == "r1"
    await conn.execute(
        "UPDATE perdure.workflows SET status = 20, worker_id = NULL, wake_at = now() + interval '1 minute'"
    )
    assert await debounce(conn, asked("r2", "[2]")) == ["r2"]
    assert await input_of(conn, "r1") == "[1]"


async def test_a_cancelled_run_is_not_postponed(conn: Connection) -> None:
    await debounce(conn, asked())
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "why")
    assert await debounce(conn, asked("r2")) == ["r2"]


# -- sent again


async def test_a_call_that_is_sent_again_does_nothing(conn: Connection) -> None:
    await debounce(conn, asked(), asked("r2", "[2]"))
    before = await row(conn)
    assert await debounce(conn, asked(), asked("r2", "[2]")) == ["r1", "r1"]
    assert await row(conn) == before
    assert await input_of(conn, "r1") == "[2]"


async def test_sent_again_after_its_run_began_it_makes_no_second_one(conn: Connection) -> None:
    await debounce(conn, asked())
    await become_due(conn)
    assert await debounce(conn, asked()) == ["r1"]
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 1


async def test_only_the_latest_calls_are_kept(conn: Connection) -> None:
    await debounce(conn, *(asked(f"r{n}") for n in range(CALLS_KEPT + 5)))
    kept = await conn.fetchval("SELECT calls FROM perdure.debounces")
    assert kept == [f"r{n}" for n in range(5, CALLS_KEPT + 5)]


async def test_made_again_when_its_key_was_forgotten_a_call_finds_its_run(conn: Connection) -> None:
    await debounce(conn, asked())
    await become_due(conn)
    await conn.execute("DELETE FROM perdure.debounces")
    assert await debounce(conn, asked()) == ["r1"]
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 1


# -- at the same time


async def test_calls_of_one_key_at_once_make_one_run(pg_url: str, conn: Connection) -> None:
    sessions = [await connect(pg_url, application_name="test") for _ in range(5)]
    found = await asyncio.gather(*(debounce(each, asked(f"r{n}", f"[{n}]")) for n, each in enumerate(sessions)))
    assert len({run_id for [run_id] in found}) == 1
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 1
    for each in sessions:
        await each.close()


async def test_a_call_that_waits_for_the_wake_of_its_run_makes_a_new_one(
    pg_url: str, conn: Connection, observer: Connection
) -> None:
    """The run that it would postpone is made claimable in that instant: no loop, whoever takes runs how quickly."""
    await debounce(conn, asked())
    await let_time_pass(conn, "wake_at", 10_000, "r1")
    async with holding(pg_url) as sweeper:
        await sweeps.wake_due(sweeper, 10)
        task = await waiting(observer, debounce(conn, asked("r2", "[2]")))
    assert await task == ["r2"]
    assert await input_of(observer, "r1") == "[1]"


# -- forgotten


async def forget(conn: Connection) -> int:
    await conn.execute("UPDATE perdure.debounces SET due_at = due_at - make_interval(secs => $1)", FORGET_SECONDS + 90)
    return await store.sweep(conn, 100)


async def test_keys_are_forgotten_a_while_after_their_runs_began(conn: Connection) -> None:
    await debounce(conn, asked())
    await become_due(conn)
    assert await store.sweep(conn, 100) == 0
    assert await forget(conn) == 1
    assert await conn.fetchval("SELECT count(*) FROM perdure.debounces") == 0


async def test_a_key_whose_run_is_still_delayed_stays(conn: Connection) -> None:
    await debounce(conn, asked())
    assert await forget(conn) == 0


async def test_a_key_whose_run_is_gone_is_forgotten(conn: Connection) -> None:
    await debounce(conn, asked())
    await conn.execute("DELETE FROM perdure.workflows")
    assert await forget(conn) == 1
