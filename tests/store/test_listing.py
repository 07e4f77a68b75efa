"""Lists of runs: their order, pages that move with nothing, each filter, and what is shown of one run and its steps."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from perdure.errors import InvalidArgument
from perdure.model.listing import OneRun, RunFilters, RunPage, RunQuery, StepQuery, filter_of
from perdure.model.management import Cut, Delete, Fork, attributes_of
from perdure.model.outcome import Cancelled, ErrorRecord, Failed, Succeeded
from perdure.model.states import CancelMode, RunStatus, StepStatus
from perdure.store import listing, runs
from perdure.store.management import manage

from tests.store.builders import Connection, add_run, claimed, failure, finish, write

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


async def runs_of(conn: Connection, count: int) -> list[str]:
    """Runs `r00` and on, each a second after the one before, three at a time at the same instant."""
    ids = [f"r{number:02}" for number in range(count)]
    for number, run_id in enumerate(ids):
        await add_run(conn, run_id, name=None, queue=f"q{number % 3}")
        await conn.execute(
            "UPDATE perdure.workflows SET created_at = $2 WHERE id = $1", run_id, BEGIN + timedelta(seconds=number // 3)
        )
    return ids


async def pages(conn: Connection, limit: int = 100, *, newest_first: bool = True, **filters: Any) -> list[list[str]]:
    """Ids on each page of the whole list."""
    said: RunFilters = filters  # type: ignore[assignment]
    found, after = [], None
    while True:
        query = RunQuery("ns", filter_of(said), limit, after, newest_first)
        page = await listing.page(conn, query)
        found.append([run.id for run in page.runs])
        after = page.next
        if after is None:
            return found


async def one_page(conn: Connection, **filters: Any) -> set[str]:
    [found] = await pages(conn, **filters)
    return set(found)


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("filters", [{}, {"id_prefix": "r"}, {"ids": [f"r{n:02}" for n in range(10)]}])
async def test_pages_have_each_run_once_in_the_order_of_creation(
    conn: Connection, newest_first: bool, filters: dict[str, Any]
) -> None:
    ids = await runs_of(conn, 10)
    wanted = ids[::-1] if newest_first else ids
    found = await pages(conn, 4, newest_first=newest_first, **filters)
    assert found == [wanted[:4], wanted[4:8], wanted[8:]]


async def test_a_full_last_page_is_known_to_be_the_last(conn: Connection) -> None:
    await runs_of(conn, 4)
    assert [len(page) for page in await pages(conn, 2)] == [2, 2]


async def test_what_is_started_and_removed_between_two_pages_moves_no_other_run(conn: Connection) -> None:
    ids = await runs_of(conn, 6)
    first = await listing.page(conn, RunQuery("ns", limit=3))
    await manage(conn, [first.runs[0].id, "r01"], Delete())
    await add_run(conn, "newer", name=None)
    second = await listing.page(conn, RunQuery("ns", limit=3, after=first.next))
    assert [run.id for run in first.runs] == ids[:2:-1]
    assert [run.id for run in second.runs] == ["r02", "r00"]


async def test_few_of_many_runs_are_found_in_portions(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await runs_of(conn, 12)
    monkeypatch.setattr(listing, "FIRST_PORTION", 2)
    monkeypatch.setattr(listing, "PORTION", 3)
    assert await pages(conn, 2, queue="q0") == [ids[9:5:-3], ids[3::-3]]


async def test_attributes_that_few_of_many_runs_have_are_looked_up(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await runs_of(conn, 40)
    for run_id in (ids[1], ids[2], ids[30]):
        await manage(conn, [run_id], attributes_of({"tenant": "a"}))
    monkeypatch.setattr(listing, "FIRST_PORTION", 3)
    monkeypatch.setattr(listing, "PORTION", 4)
    for newest_first, wanted in ((True, [[ids[30], ids[2]], [ids[1]]]), (False, [[ids[1], ids[2]], [ids[30]]])):
        assert await pages(conn, 2, newest_first=newest_first, attributes={"tenant": "a"}) == wanted


async def test_runs_of_other_namespaces_are_not_in_the_list(conn: Connection) -> None:
    await add_run(conn, "mine", name=None)
    await add_run(conn, "theirs", name=None, namespace="other")
    assert await one_page(conn) == {"mine"}
    assert await one_page(conn, ids=["mine", "theirs"]) == {"mine"}


async def test_each_filter_lets_its_runs_pass_and_no_others(conn: Connection) -> None:
    done = await claimed(conn, "done", name=None)
    await write(conn, done, finish(), ending=Succeeded("1"))
    failed = await claimed(conn, "failed", name=None, workflow="x", queue="q", partition_key="p")
    await write(conn, failed, ending=Failed(ErrorRecord("E", "m")))
    await runs.cancel(conn, await add_run(conn, "stopped", name=None, pool="other"), CancelMode.GRACEFUL, "why")
    await add_run(conn, "ready", name=None, workflow="y", requires=("workflow:y",))
    await conn.execute("UPDATE perdure.workflows SET parent_id = 'done', parent_step = 0 WHERE id = 'ready'")
    await manage(conn, ["done"], attributes_of({"tenant": "a", "tags": ["x", "y"]}))
    await manage(conn, ["done"], Fork("forked", Cut.BEGINNING))
    await manage(conn, ["forked"], attributes_of({"tenant": "b", "tags": None}))
    everything = {"done", "failed", "stopped", "ready", "forked"}
    assert await one_page(conn) == everything
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"status": RunStatus.FAILED}, {"failed"}),
        ({"status": [RunStatus.SUCCEEDED, RunStatus.CANCELLED]}, {"done", "stopped"}),
        ({"status": [RunStatus.ENQUEUED, RunStatus.DELAYED]}, {"ready", "forked"}),
        ({"status": []}, set()),
        ({"ids": ["done", "ready", "nobody"]}, {"done", "ready"}),
        ({"ids": []}, set()),
        ({"ids": ["done", "ready"], "workflow": "y"}, {"ready"}),
        ({"id_prefix": "f"}, {"failed", "forked"}),
        ({"workflow": "y"}, {"ready"}),
        ({"workflow": ["x", "y"], "queue": "q"}, {"failed"}),
        ({"queue": "q"}, {"failed"}),
        ({"pool": ["other", "nobody"]}, {"stopped"}),
        ({"version": "v1"}, {"done", "failed"}),
        ({"parent_id": "done"}, {"ready"}),
        ({"forked_from": "done"}, {"forked"}),
        ({"partition_key": "p"}, {"failed"}),
        ({"attributes": {"tenant": "a"}}, {"done"}),
        ({"attributes": {"tags": ["y"]}}, {"done"}),
        ({"created_from": BEGIN}, everything),
        ({"created_until": BEGIN}, set()),
        ({"finished_from": BEGIN}, {"done", "failed", "stopped"}),
        ({"finished_until": BEGIN}, set()),
    ]
    for filters, wanted in cases:
        assert await one_page(conn, **filters) == wanted, filters
        assert set((await pages(conn, newest_first=False, **filters))[0]) == wanted, filters


async def test_limits_of_time_include_the_first_instant_and_not_the_last(conn: Connection) -> None:
    ids = await runs_of(conn, 9)
    limits = {"created_from": BEGIN + timedelta(seconds=1), "created_until": BEGIN + timedelta(seconds=2)}
    for newest_first in (True, False):
        [found] = await pages(conn, newest_first=newest_first, **limits)
        assert sorted(found) == ids[3:6]


async def test_a_deleted_run_is_in_no_list(conn: Connection) -> None:
    await add_run(conn, name=None)
    await manage(conn, ["r1"], Delete())
    assert await pages(conn) == [[]]
    assert await listing.one(conn, OneRun("r1")) is None
    assert await listing.steps(conn, StepQuery("r1")) is None


async def test_of_one_run_everything_is_known(conn: Connection) -> None:
    run = await claimed(conn, name=None, input='{"n": 1}', priority=7, partition_key="p", timeout=timedelta(minutes=5))
    await write(conn, run, finish(), ending=Cancelled("enough"))
    await runs.cancel(conn, "r1", CancelMode.GRACEFUL, "late")
    found = await listing.one(conn, OneRun("r1"))
    assert found is not None
    assert (found.id, found.namespace, found.workflow, found.status) == ("r1", "ns", "x", RunStatus.CANCELLED)
    assert (found.priority, found.partition_key, found.version, found.timeout) == (7, "p", "v1", 300.0)
    assert (found.cancel_reason, found.attributes, found.worker) == ("enough", {}, None)
    assert (found.input, found.output, found.error) == ('{"n": 1}', None, None)
    assert found.created_at.tzinfo is not None
    assert found.started_at is not None
    assert found.finished_at is not None
    assert found.deadline_at is not None
    light = await listing.one(conn, OneRun("r1", payloads=False))
    assert light is not None
    assert light.input is None


async def test_what_a_run_waits_for_is_a_sentence(conn: Connection) -> None:
    run = await claimed(conn, max_run_attempts=2, name=None)
    await write(conn, run, ending=Failed(ErrorRecord("E", "no luck")))
    found = await listing.one(conn, OneRun("r1"))
    assert found is not None
    assert found.waiting_for == "the run failed and will be tried again: E: no luck"


async def test_steps_come_in_order_and_in_pages(conn: Connection) -> None:
    run = await claimed(conn, name=None)
    await write(conn, run, finish(0, 1), failure(1, 2), finish(2, 3))
    first = await listing.steps(conn, StepQuery("r1", limit=2))
    assert first is not None
    assert [(step.index, step.status, step.output) for step in first] == [
        (0, StepStatus.SUCCEEDED, '"ok"'),
        (1, StepStatus.FAILED, None),
    ]
    assert first[1].error is not None
    rest = await listing.steps(conn, StepQuery("r1", after=1, payloads=False))
    assert rest is not None
    assert [(step.index, step.output) for step in rest] == [(2, None)]
    assert await listing.steps(conn, StepQuery("r1", after=2)) == ()
    assert await listing.steps(conn, StepQuery("nobody")) is None


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"status": "FAILED"}, "status is a RunStatus"),
        ({"created_from": datetime(2026, 1, 1)}, "with a time zone"),  # noqa: DTZ001
        ({"ids": "r1"}, "ids are a list"),
        ({"ids": [f"r{n}" for n in range(1001)]}, "1001 ids in one list"),
        ({"queue": ""}, "must not be empty"),
        ({"workflow": ["x\n"]}, "not printable"),
        ({"attributes": ["a"]}, "attributes are a dict"),
        ({"parent_id": "x" * 1101}, "at most 1100"),
    ],
)
def test_a_filter_that_no_run_can_pass_is_refused(filters: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        filter_of(filters)


def test_an_unknown_filter_is_refused() -> None:
    with pytest.raises(TypeError, match="'colour' is no filter"):
        filter_of({"colour": "red"})  # type: ignore[typeddict-unknown-key]


@pytest.mark.parametrize("limit", [0, -1, 1001, True, 2.0, "3"])
def test_a_limit_out_of_its_range_is_refused(limit: Any) -> None:
    for make in (lambda: RunQuery("ns", limit=limit), lambda: StepQuery("r1", limit=limit, payloads=False)):
        with pytest.raises(InvalidArgument, match="limit must be 1 to 1000"):
            make()
    with pytest.raises(InvalidArgument, match="limit must be 1 to 100 where payloads"):
        RunQuery("ns", limit=101, payloads=True)


@pytest.mark.parametrize("after", ["", "r1", "x:r1", "1:", "-1:r1", "9" * 30 + ":r1", 5])
def test_a_place_that_is_none_is_refused(after: Any) -> None:
    with pytest.raises(InvalidArgument, match="after is `next` of a page before"):
        RunQuery("ns", after=after)


async def test_lists_and_starts_beside_each_other_never_miss_a_run_that_was_there_before(conn: Connection) -> None:
    before = set(await runs_of(conn, 30))
    found: set[str] = set()
    page: RunPage | None = None
    number = 0
    while page is None or page.next is not None:
        query = RunQuery("ns", limit=7, after=None if page is None else page.next, newest_first=False)
        page = await listing.page(conn, query)
        found |= {run.id for run in page.runs}
        await add_run(conn, f"new{number}", name=None)
        number += 1
        await asyncio.sleep(0)
    assert before <= found
