"""Debounced starts with clients and workers: from outside, and from the body of a run, killed in the middle as well."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import perdure
import pytest
from perdure.api import step, workflow
from perdure.engine.registry import Registry
from perdure.errors import InsideStep, InsideWorkflow, InvalidArgument
from perdure.model.states import RunStatus
from perdure.store import debounce as store
from perdure.store import sweeps
from perdure.worker.link import Connection

from tests.support.pgwait import eventually
from tests.support.workerproc import working

registry = Registry()
reached: dict[str, perdure.Client] = {}


@workflow(name="d.index", registry=registry)
async def index(document: str, version: int) -> str:
    return f"{document}@{version}"


@workflow(name="d.edit", registry=registry)
async def edit(document: str, versions: list[int]) -> str:
    for version in versions:
        handle = await perdure.debounce(index.prepare(document, version), document, 60)
    return handle.id


@workflow(name="d.edit_and_wait", registry=registry)
async def edit_and_wait(document: str) -> str:
    return await (await perdure.debounce(index.prepare(document, 1), document, 0.05)).result()


@step(name="d.tell_in_step", registry=registry)
async def tell_in_step() -> str:
    return await told()


async def told() -> str:
    try:
        await reached["client"].debounce(index.prepare("a", 1), "a", 1)
    except (InsideWorkflow, InsideStep) as error:
        return type(error).__name__
    return "done"


@workflow(name="d.tell", registry=registry)
async def tell() -> list[str]:
    return [await told(), await tell_in_step()]


@pytest.fixture
async def client(db: str) -> AsyncIterator[perdure.Client]:
    async with perdure.Client(db, "ns") as client:
        yield client


async def become_due(conn: Connection) -> None:
    await conn.execute("UPDATE perdure.workflows SET wake_at = now(), run_at = now() WHERE status = 20")


async def test_of_many_starts_one_run_is_left_with_the_input_of_the_last(
    db: str, conn: Connection, client: perdure.Client
) -> None:
    handles = [await client.debounce(index.prepare("a", n), key="a", delay=60) for n in range(5)]
    assert len(set(handles)) == 1
    assert await handles[0].status() is RunStatus.DELAYED
    async with working(db, registry):
        await become_due(conn)
        assert await handles[-1].result(20.0) == "a@4"
        after = await client.debounce(index.prepare("a", 9), key="a", delay=60)
        assert after != handles[0]


async def test_a_call_whose_answer_is_lost_is_made_again_and_does_nothing_more(
    conn: Connection, client: perdure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Committed, and the run has begun before the call is made again: it is not the first of another run."""
    real, lost = store.debounce, [True]

    async def losing(connection: Any, namespace: str, asked: Any) -> str:
        run_id = await real(connection, namespace, asked)
        if lost and lost.pop():
            await become_due(conn)
            await sweeps.wake_due(conn, 10)
            raise asyncpg.ConnectionDoesNotExistError("the answer is lost")
        return run_id

    monkeypatch.setattr("perdure.client.client.debounce", losing)
    handle = await client.debounce(index.prepare("a", 1), key="a", delay=60)
    assert await handle.status() is RunStatus.ENQUEUED
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 1


async def test_a_body_postpones_what_programs_have_started(db: str, conn: Connection, client: perdure.Client) -> None:
    first = await client.debounce(index.prepare("a", 1), key="a", delay=60)
    async with working(db, registry):
        assert await client.run(edit, "a", [2, 3]) == first.id
        await become_due(conn)
        assert await first.result(20.0) == "a@3"


async def test_a_body_starts_a_run_that_is_no_child_and_can_wait_for_it(
    db: str, conn: Connection, client: perdure.Client
) -> None:
    async with working(db, registry):
        handle = await client.start(edit_and_wait.options(id="p"), "a")

        async def parked() -> bool:
            return await handle.status() is RunStatus.WAITING

        assert await handle.result(20.0) == "a@1"
    made = await conn.fetchrow("SELECT parent_id, pool, queue FROM perdure.workflows WHERE id = 'p-0'")
    assert made is not None
    assert tuple(made) == (None, "default", "default")


async def test_a_body_that_is_run_again_after_its_worker_died_makes_no_second_run(
    db: str, conn: Connection, client: perdure.Client
) -> None:
    """The effect is durable, the step that stands for it is not: as if the worker had died between the two."""
    async with working(db, registry):
        run_id = await client.run(edit.options(id="p"), "a", [1])
        await become_due(conn)
        await client.handle(run_id).wait(20.0)
        await conn.execute("DELETE FROM perdure.workflow_steps WHERE workflow_id = 'p'")
        await conn.execute(
            "UPDATE perdure.workflows SET status = 10, finished_at = NULL, fence = fence + 1, ended_fence = NULL"
            " WHERE id = 'p'"
        )
        again = client.handle("p", edit)

        async def ended() -> bool:
            return (await again.status()).finished

        await eventually(ended, "it has run again")
        assert await again.output() == run_id
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows WHERE workflow = 'd.index'") == 1


async def test_the_clients_verb_is_refused_in_a_body_and_in_a_step(db: str, client: perdure.Client) -> None:
    reached["client"] = client
    async with working(db, registry):
        assert await client.run(tell) == ["InsideWorkflow", "InsideStep"]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"key": ""}, "key must not be empty"),
        ({"delay": 0}, "delay must be longer"),
        ({"delay": 5, "cap": 1}, "at least as long as delay"),
    ],
)
async def test_bad_arguments_are_told_to_the_caller(
    client: perdure.Client, said: dict[str, Any], sentence: str
) -> None:
    given: dict[str, Any] = {"key": "a", "delay": 60, **said}
    with pytest.raises(InvalidArgument, match=sentence):
        await client.debounce(index.prepare("a", 1), **given)
    with pytest.raises(InvalidArgument, match="the option id"):
        await client.debounce(index.options(id="x").prepare("a", 1), "a", 60)
