"""`perdure.start_workflow(…)`: a start by plain SQL is a start like any other."""

import json
import uuid
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from perdure.model.states import CancelMode, RunStatus
from perdure.store import clients, runs, sweeps

from tests.store.builders import Connection, add_worker, claim, everything, let_time_pass, row

CHANGES = {"id", "run_at", "created_at", "waiting_since"}


async def call(conn: Connection, arguments: str, *values: Any) -> str:
    found = await conn.fetchval(f"SELECT perdure.start_workflow({arguments})", *values)
    assert isinstance(found, str)
    return found


async def refused(conn: Connection, arguments: str) -> tuple[str, str]:
    """SQLSTATE and message."""
    before = await everything(conn)
    with pytest.raises(asyncpg.PostgresError) as error:
        await call(conn, arguments)
    assert await everything(conn) == before
    return error.value.sqlstate, str(error.value)


async def test_a_start_by_sql_is_as_one_by_a_client(conn: Connection) -> None:
    run_id = await call(conn, "'x', '[1]', namespace => 'ns'")
    await clients.start(conn, "ns", [clients.RunStart("other", "x", "[1]", "default", "default", 100)], awaited=False)
    one, two = dict(await row(conn, run_id)), dict(await row(conn, "other"))
    assert {key for key in one if one[key] != two[key]} <= CHANGES
    assert uuid.UUID(run_id).version == 7
    await add_worker(conn)
    assert [(each.id, each.input) for each in await claim(conn)] == [(run_id, "[1]"), ("other", "[1]")]


async def test_everything_that_is_said_is_in_the_run(conn: Connection) -> None:
    said = (
        "'x', '{\"b\": 1, \"a\": \"ü\"}', id => 'mine', namespace => 'n', pool => 'p', queue => 'q', priority => 7,"
        " timeout => '1 hour', partition_key => 'k', deduplication_id => 'd', attributes => '{\"t\": 1}',"
        " max_run_attempts => 5"
    )
    assert await call(conn, said) == "mine"
    found = await row(conn, "mine")
    assert [found[each] for each in ("workflow", "namespace", "pool", "queue", "priority", "partition_key")] == (
        ["x", "n", "p", "q", 7, "k"]
    )
    assert (found["timeout"], found["deduplication_id"], found["max_run_attempts"]) == (timedelta(hours=1), "d", 5)
    assert json.loads(found["attributes"]) == {"t": 1}
    text = await conn.fetchval("SELECT input FROM perdure.workflow_payloads WHERE workflow_id = 'mine'")
    assert json.loads(text) == {"a": "ü", "b": 1}


async def test_a_delayed_start_by_sql_becomes_claimable_when_its_time_comes(conn: Connection) -> None:
    run_id = await call(conn, "'x', namespace => 'ns', delay => '1 minute'")
    assert RunStatus((await row(conn, run_id))["status"]) is RunStatus.DELAYED
    await let_time_pass(conn, "wake_at", 60.0)
    await sweeps.wake_due(conn, 10)
    await add_worker(conn)
    assert [each.id for each in await claim(conn)] == [run_id]


async def test_a_start_by_sql_is_gone_with_its_transaction(conn: Connection) -> None:
    with pytest.raises(ZeroDivisionError):
        async with conn.transaction():
            await call(conn, "'x'")
            raise ZeroDivisionError
    assert await everything(conn) == [[], [], []]


async def test_the_same_start_again_gives_the_run_that_is_there_whatever_the_order_of_its_keys(
    conn: Connection,
) -> None:
    await clients.start(
        conn, "default", [clients.RunStart("mine", "x", '{"b":1,"a":2.0}', "default", "default", 100)], awaited=False
    )
    assert await call(conn, "'x', '{\"a\": 2, \"b\": 1}', id => 'mine'") == "mine"
    await runs.cancel(conn, "mine", CancelMode.GRACEFUL, "no")
    assert await call(conn, "'x', '{\"a\": 2, \"b\": 1}', id => 'mine'") == "mine"


@pytest.mark.parametrize("other", ["'y', '[1]'", "'x', '[2]'", "'x', '[1]', namespace => 'other'"])
async def test_an_id_of_another_run_is_a_conflict(conn: Connection, other: str) -> None:
    await call(conn, "'x', '[1]', id => 'mine'")
    state, message = await refused(conn, f"{other}, id => 'mine'")
    assert state == "PD521"
    assert "PRD-521: the id mine belongs to a run of workflow x in namespace default" in message


async def test_an_input_that_is_no_json_is_another_one_and_no_error_of_its_own(conn: Connection) -> None:
    await call(conn, "'x', '[1]', id => 'mine'")
    await conn.execute("UPDATE perdure.workflow_payloads SET input = '!box:abc'")
    assert (await refused(conn, "'x', '[1]', id => 'mine'"))[0] == "PD521"


async def test_a_duplicate_is_refused_until_the_run_has_ended(conn: Connection) -> None:
    first = await call(conn, "'x', deduplication_id => 'd'")
    state, message = await refused(conn, "'x', deduplication_id => 'd'")
    assert (state, f"run {first} holds deduplication id d of queue default" in message) == ("PD527", True)
    await call(conn, "'x', deduplication_id => 'd', queue => 'other'")
    await runs.cancel(conn, first, CancelMode.GRACEFUL, "no")
    assert await call(conn, "'x', deduplication_id => 'd'") != first


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("NULL", "workflow is a registered name"),
        ("'a b'", "workflow is a registered name"),
        ("'x', NULL", "input is JSON"),
        ("'x', id => ''", "id is 1 to 255"),
        ("'x', id => repeat('x', 256)", "id is 1 to 255"),
        ("'x', id => E'a\\nb'", "id is 1 to 255"),
        ("'x', queue => NULL", "namespace, pool and queue"),
        ("'x', pool => repeat('p', 64)", "namespace, pool and queue"),
        ("'x', priority => 0", "priority must be at least 1"),
        ("'x', timeout => '0'", "timeout must be longer than zero"),
        ("'x', delay => '-1 s'", "delay must be longer than zero"),
        ("'x', delay => '1000000 days'", "at most a hundred years"),
        ("'x', partition_key => NULL", "partition_key is at most 255"),
        ("'x', deduplication_id => ''", "deduplication_id is 1 to 255"),
        ("'x', attributes => '[]'", "attributes are a JSON object"),
        ("'x', attributes => jsonb_build_object('a', repeat('x', 17000))", "at most 16 KiB"),
        ("'x', max_run_attempts => 0", "max_run_attempts must be 1 to 100"),
    ],
)
async def test_an_argument_out_of_its_range_is_refused(conn: Connection, arguments: str, says: str) -> None:
    state, message = await refused(conn, arguments)
    assert (state, says in message, message.startswith("PRD-520: ")) == ("PD520", True, True), message


async def test_a_large_input_is_refused(conn: Connection) -> None:
    assert (await refused(conn, "'x', to_jsonb(repeat('x', 1100000))"))[0] == "PD403"


async def test_names_of_the_caller_do_not_mislead_it(conn: Connection) -> None:
    """A function that is called in somebody's search path uses only what is Postgres' and ours."""
    await conn.execute("CREATE SCHEMA trap")
    await conn.execute(
        "CREATE FUNCTION trap.gen_random_uuid() RETURNS uuid LANGUAGE sql AS 'SELECT 1 / 0; SELECT NULL::uuid'"
    )
    await conn.execute("SET search_path = trap, pg_catalog")
    await call(conn, "'x'")
