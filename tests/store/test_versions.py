"""Runs of earlier versions go on with a later one where their workflow's policy allows it, and only then."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from perdure.model.outcome import Parked
from perdure.model.rows import WaitingFor
from perdure.model.states import CancelMode
from perdure.model.versions import VersionPolicy, WorkflowVersion
from perdure.store import backlog, claims, runs, status, versions, workers
from perdure.store.pool import connect
from perdure.store.versions import Adopted

from tests.store.builders import Connection, add_run, add_worker, claim, claimed, let_time_pass, row, write

NONE = Adopted(0, 0)


@pytest.fixture
async def other(pg_url: str) -> AsyncIterator[Connection]:
    connection = await connect(pg_url, application_name="other")
    yield connection
    await connection.close()


def has(policy: str = "auto", source: str | None = "same", *names: str) -> list[WorkflowVersion]:
    return [WorkflowVersion(name, source, VersionPolicy(policy)) for name in names or ("x",)]


async def registered(conn: Connection, version: str, workflows: Iterable[WorkflowVersion], **fields: Any) -> str:
    """A worker of this version, which has said what it has."""
    await versions.register(conn, "ns", "default", version, list(workflows), first=True)
    return await add_worker(conn, f"w-{version}", version=version, **fields)


async def adopt(conn: Connection, version: str = "v2", limit: int = 100) -> Adopted:
    return await versions.adopt(conn, "ns", "default", version, limit)


async def parked(conn: Connection, run_id: str = "r1", worker_id: str = "w-v1", **fields: Any) -> str:
    run = await claimed(conn, run_id, worker_id, **fields)
    await write(conn, run, ending=Parked(WaitingFor("Sleep"), 3600.0), worker_id=worker_id)
    return run_id


async def version_of(conn: Connection, run_id: str = "r1") -> str | None:
    found: str | None = (await row(conn, run_id))["version"]
    return found


async def two_versions(
    conn: Connection, later: list[WorkflowVersion], earlier: list[WorkflowVersion] | None = None
) -> None:
    await registered(conn, "v1", has() if earlier is None else earlier)
    await parked(conn)
    await registered(conn, "v2", later)


async def test_what_waits_goes_on_with_a_version_whose_source_is_the_same(conn: Connection) -> None:
    await two_versions(conn, has())
    assert await adopt(conn) == Adopted(1, 0)
    assert await version_of(conn) == "v2"
    assert await adopt(conn) == NONE


@pytest.mark.parametrize(
    ("later", "earlier"),
    [
        (has("auto", "changed"), has()),
        (has("auto", None), has("auto", None)),
        (has("auto", "same"), has("auto", None)),
        (has("pinned"), has()),
        (has("auto", "same", "other"), has()),
        (has(), []),
    ],
    ids=["changed", "unreadable", "unreadable before", "pinned now", "no such workflow", "nothing known of it"],
)
async def test_other_runs_stay_with_the_version_that_began_them(
    conn: Connection, later: list[WorkflowVersion], earlier: list[WorkflowVersion]
) -> None:
    await two_versions(conn, later, earlier)
    assert await adopt(conn) == NONE
    assert await version_of(conn) == "v1"


@pytest.mark.parametrize("earlier", [has("pinned", "other"), has("pinned", None), []])
async def test_of_a_patched_workflow_all_runs_go_on_whatever_has_changed(
    conn: Connection, earlier: list[WorkflowVersion]
) -> None:
    await two_versions(conn, has("patched", "changed"), earlier)
    assert await adopt(conn) == Adopted(1, 0)


async def test_it_is_the_policy_of_the_later_version_that_counts(conn: Connection) -> None:
    await two_versions(conn, has("auto"), has("pinned"))
    assert await adopt(conn) == Adopted(1, 0)


async def test_a_run_that_a_worker_has_is_let_be_and_goes_on_later_once_it_waits(conn: Connection) -> None:
    await registered(conn, "v1", has())
    run = await claimed(conn, "r1", "w-v1")
    await registered(conn, "v2", has())
    assert await adopt(conn) == NONE
    await write(conn, run, ending=Parked(WaitingFor("Sleep"), 3600.0), worker_id="w-v1")
    assert await adopt(conn) == Adopted(1, 0)


async def test_ready_and_delayed_and_suspended_runs_are_adopted_too(conn: Connection) -> None:
    await registered(conn, "v1", has())
    begun = [await claimed(conn, run_id, "w-v1") for run_id in ("ready", "delayed", "suspended")]
    await workers.give_back(conn, "w-v1", [(run.id, run.fence) for run in begun])
    await conn.execute("UPDATE perdure.workflows SET status = 20, wake_at = now() WHERE id = 'delayed'")
    await conn.execute("UPDATE perdure.workflows SET suspended = true WHERE id = 'suspended'")
    await registered(conn, "v2", has())
    assert await adopt(conn) == Adopted(3, 2)


async def test_what_has_ended_and_what_was_never_begun_is_let_be(conn: Connection) -> None:
    await registered(conn, "v1", has())
    await parked(conn, "ended")
    await runs.cancel(conn, "ended", CancelMode.IMMEDIATE, "why")
    await add_run(conn, "new")
    await registered(conn, "v2", has())
    assert await adopt(conn) == NONE
    assert [await version_of(conn, "ended"), await version_of(conn, "new")] == ["v1", None]


async def test_an_adopted_run_is_claimed_by_the_later_version_and_by_no_other(conn: Connection) -> None:
    await two_versions(conn, has())
    await adopt(conn)
    await let_time_pass(conn, "wake_at", 7200)
    await conn.execute("UPDATE perdure.workflows SET status = 10, wake_at = NULL")
    assert await claim(conn, "w-v1", version="v1") == []
    assert [run.id for run in await claim(conn, "w-v2", version="v2")] == ["r1"]


async def test_its_fence_stays_and_its_status_is_due_with_a_higher_revision(conn: Connection) -> None:
    await two_versions(conn, has())
    before = (await status.read(conn, ["r1"]))[0].run
    await conn.execute("UPDATE perdure.workflows SET status_due_at = NULL")
    await adopt(conn)
    after = (await status.read(conn, ["r1"]))[0].run
    assert after.fence == before.fence
    assert (after.version, after.revision > before.revision) == ("v2", True)
    assert (await row(conn))["status_due_at"] is not None


async def test_a_reason_that_was_said_for_the_earlier_version_is_looked_for_anew(conn: Connection) -> None:
    await registered(conn, "v1", has())
    run = await claimed(conn, "r1", "w-v1")
    await workers.give_back(conn, "w-v1", [(run.id, run.fence)])
    await backlog.set_waiting(conn, [("r1", run.fence + 1, WaitingFor("NoWorkerVersion", "v1"))])
    assert (await row(conn))["waiting_for"] is not None
    await registered(conn, "v2", has())
    await adopt(conn)
    assert (await row(conn))["waiting_for"] is None


async def test_the_earlier_version_has_no_runs_left_so_that_it_can_go(conn: Connection) -> None:
    await two_versions(conn, has())
    assert [(each.version, each.waiting) for each in await backlog.pool_backlog(conn, "ns", "default")] == [("v1", 1)]
    await adopt(conn)
    assert [(each.version, each.waiting) for each in await backlog.pool_backlog(conn, "ns", "default")] == [("v2", 1)]


async def test_the_earlier_of_two_versions_takes_nothing_back(conn: Connection) -> None:
    await two_versions(conn, has())
    await adopt(conn, "v2")
    assert await adopt(conn, "v1") == NONE


async def test_a_further_worker_of_the_earlier_version_does_not_make_it_the_newer(conn: Connection) -> None:
    await two_versions(conn, has())
    await versions.register(conn, "ns", "default", "v1", has(), first=True)
    await adopt(conn, "v2")
    assert await adopt(conn, "v1") == NONE


async def test_a_worker_that_registers_again_after_a_loss_does_not_make_its_version_the_newer(conn: Connection) -> None:
    await two_versions(conn, has())
    await workers.mark_dead(conn, ["uid-w-v1"])
    await versions.register(conn, "ns", "default", "v1", has(), first=False)
    await add_worker(conn, "w-v1-again", version="v1")
    await adopt(conn, "v2")
    assert await adopt(conn, "v1") == NONE


async def test_after_a_rollback_the_runs_go_back_to_the_version_that_serves_again(conn: Connection) -> None:
    await two_versions(conn, has())
    await adopt(conn, "v2")
    await workers.retire(conn, "ns", "default", "v1")
    assert await adopt(conn, "v2") == NONE
    assert await adopt(conn, "v1") == Adopted(1, 0)
    assert await adopt(conn, "v2") == NONE


async def test_a_version_that_begins_anew_when_none_of_it_was_there_is_the_newest(conn: Connection) -> None:
    await two_versions(conn, has())
    await adopt(conn, "v2")
    await workers.stop(conn, "w-v1")
    await versions.register(conn, "ns", "default", "v1", has(), first=True)
    await add_worker(conn, "w-v1-again", version="v1")
    assert await adopt(conn, "v1") == Adopted(1, 0)
    assert await adopt(conn, "v2") == NONE


async def test_a_version_without_workers_takes_nothing(conn: Connection) -> None:
    await two_versions(conn, has())
    await workers.stop(conn, "w-v2")
    assert await adopt(conn, "v2") == NONE


async def test_runs_of_other_pools_and_namespaces_are_let_be(conn: Connection) -> None:
    await two_versions(conn, has())
    await conn.execute("UPDATE perdure.workflows SET pool = 'other'")
    assert await adopt(conn) == NONE
    await conn.execute("UPDATE perdure.workflows SET pool = 'default', namespace = 'other'")
    assert await adopt(conn) == NONE


async def test_no_more_than_the_limit_is_taken_at_once(conn: Connection) -> None:
    await registered(conn, "v1", has())
    for number in range(5):
        await parked(conn, f"r{number}")
    await registered(conn, "v2", has())
    assert [await adopt(conn, limit=2) for _ in range(4)] == [Adopted(2, 0), Adopted(2, 0), Adopted(1, 0), NONE]


async def test_of_several_earlier_versions_all_runs_are_taken(conn: Connection) -> None:
    for version in ("v0", "v1"):
        await registered(conn, version, has())
        run = await claimed(conn, f"r-{version}", f"w-{version}") if version == "v1" else None
        if run is None:
            await add_run(conn, "r-v0")
            [run] = await claim(conn, "w-v0", version="v0")
        await write(conn, run, ending=Parked(WaitingFor("Sleep"), 3600.0), worker_id=f"w-{version}")
    await registered(conn, "v2", has())
    assert await adopt(conn) == Adopted(2, 0)


async def test_what_another_holds_is_skipped_and_not_waited_for(conn: Connection, other: Connection) -> None:
    await two_versions(conn, has())
    async with other.transaction():
        await other.execute("SELECT FROM perdure.workflows WHERE id = 'r1' FOR UPDATE")
        assert await adopt(conn) == NONE
    assert await adopt(conn) == Adopted(1, 0)


async def test_a_worker_without_a_version_says_nothing(conn: Connection) -> None:
    assert await versions.register(conn, "ns", "default", "", has(), first=True) == []
    assert await conn.fetchval("SELECT count(*) FROM perdure.worker_versions") == 0


async def test_what_is_known_is_written_once(conn: Connection) -> None:
    await registered(conn, "v1", has("auto", "same", "a", "b"))
    assert await versions.register(conn, "ns", "default", "v1", has("auto", "same", "a", "b"), first=True) == []
    assert await versions.register(conn, "ns", "default", "v1", has("auto", "other", "b"), first=True) == ["b"]
    assert await versions.register(conn, "ns", "default", "v1", has("pinned", "other", "b"), first=True) == ["b"]


async def test_two_workers_that_register_at_once_do_not_lock_each_other_out(
    conn: Connection, other: Connection
) -> None:
    names = [f"w{number}" for number in range(200)]
    await asyncio.gather(
        versions.register(conn, "ns", "default", "v1", has("auto", "a", *names), first=True),
        versions.register(other, "ns", "default", "v1", has("auto", "b", *reversed(names)), first=True),
    )


async def test_a_version_is_forgotten_once_it_has_neither_workers_nor_runs(conn: Connection) -> None:
    await registered(conn, "v1", has())
    assert await versions.forget(conn, 0.0) == []
    await parked(conn)
    await workers.stop(conn, "w-v1")
    assert await versions.forget(conn, 0.0) == []
    await runs.cancel(conn, "r1", CancelMode.IMMEDIATE, "why")
    assert await versions.forget(conn, 3600.0) == []
    assert await versions.forget(conn, 0.0) == ["v1"]


async def test_a_version_whose_run_still_runs_is_not_forgotten(conn: Connection) -> None:
    await registered(conn, "v1", has())
    await claimed(conn, "r1", "w-v1")
    await workers.mark_dead(conn, ["uid-w-v1"])
    assert await versions.forget(conn, 0.0) == []


async def test_a_claim_goes_by_the_version_that_the_run_has_now(conn: Connection, other: Connection) -> None:
    """The earlier version's worker has looked, and claims when the run is another version's."""
    await registered(conn, "v1", has())
    run = await claimed(conn, "r1", "w-v1")
    await workers.give_back(conn, "w-v1", [(run.id, run.fence)])
    scope = claims.Scope("w-v1", "ns", "default", "default", ("workflow:x",), "v1")
    look = await claims.look(other, scope, "")
    assert look.ranges
    await registered(conn, "v2", has())
    assert await adopt(conn) == Adopted(1, 1)
    taken = await claims.take(other, scope, list(look.ranges.items()), 10, False)
    assert taken.total == 0
