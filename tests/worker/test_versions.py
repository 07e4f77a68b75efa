"""A new version of the code comes while runs of the one before wait: which of them go on with it, and how."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import perdure
import pytest
from perdure.engine.registry import Registry
from perdure.model.states import RunStatus
from perdure.telemetry import names
from perdure.worker.worker import Worker

from tests.support.pgwait import eventually
from tests.support.workerproc import working

NAME = "versioned"

Body = Callable[[], Coroutine[Any, Any, Any]]


@perdure.step(name="note", registry=Registry())
async def note(what: str) -> str:
    return what


async def waits() -> str:
    await note("a")
    await perdure.recv("go")
    return "as before"


async def waits_and_says_so() -> str:
    await note("a")
    await perdure.recv("go")
    return "changed"


async def patched() -> list[Any]:
    early = await perdure.patch("early")
    await note("a")
    await perdure.recv("go")
    return [early, await perdure.patch("late")]


async def moved() -> str:
    await perdure.recv("go")
    return await note("a")


@asynccontextmanager
async def version(db: str, name: str, body: Body, policy: Any = None, **settings: Any) -> AsyncIterator[Worker]:
    registry = Registry()
    registry.add_step(note.definition)
    perdure.workflow(name=NAME, registry=registry, version_policy=policy)(body)
    async with working(db, registry, namespace="default", version=name, **settings) as worker:
        yield worker


@asynccontextmanager
async def begun(db: str, body: Body) -> AsyncIterator[tuple[perdure.Client, perdure.Handle[Any]]]:
    """A run that version v1 has begun and that waits for a message."""
    async with perdure.Client(db) as client:
        async with version(db, "v1", body):
            handle = await client.start_by_name(NAME)
            await eventually(lambda: stands(handle, RunStatus.WAITING))
        yield client, handle


async def stands(handle: perdure.Handle[Any], status: RunStatus) -> bool:
    return await handle.status() is status


async def has_adopted(worker: Worker) -> bool:
    return worker.metrics.value(names.RUNS_ADOPTED) == 1


@pytest.mark.parametrize(
    ("body", "policy", "result"),
    [
        (waits, "auto", "as before"),
        (waits_and_says_so, "patched", "changed"),
        (patched, "patched", [False, True]),
    ],
)
async def test_a_run_that_may_goes_on_with_the_new_version(db: str, body: Body, policy: str, result: Any) -> None:
    async with begun(db, waits) as (client, handle), version(db, "v2", body, policy) as worker:
        await client.send(handle.id, "now", "go")
        assert await handle.result(timeout=20) == result
        assert (await client.get_workflow(handle.id)).version == "v2"
        assert worker.metrics.value(names.RUNS_ADOPTED) == 1


@pytest.mark.parametrize(("body", "policy"), [(waits, "pinned"), (waits_and_says_so, "auto"), (waits, None)])
async def test_a_run_that_may_not_stays_with_the_version_that_began_it(db: str, body: Body, policy: Any) -> None:
    async with begun(db, waits) as (client, handle):
        async with version(db, "v2", body, policy) as worker:
            await client.send(handle.id, "now", "go")
            # A run that begins later is taken and ends, so there was time for this one.
            other = await client.start_by_name(NAME)
            await client.send(other.id, "now", "go")
            await other.result(timeout=20)
            assert worker.metrics.value(names.RUNS_ADOPTED) == 0
            assert await handle.status() is RunStatus.ENQUEUED
        async with version(db, "v1", waits):
            assert await handle.result(timeout=20) == "as before"


async def test_what_the_settings_of_the_worker_say_is_the_policy_of_those_that_say_nothing(db: str) -> None:
    async with begun(db, waits) as (client, handle), version(db, "v2", waits, version_policy="auto"):
        await client.send(handle.id, "now", "go")
        assert await handle.result(timeout=20) == "as before"


async def test_beside_a_worker_of_the_earlier_version_its_waiting_runs_go_on_with_the_new_one(db: str) -> None:
    async with perdure.Client(db) as client, version(db, "v1", waits, "auto"):
        handle = await client.start_by_name(NAME)
        await eventually(lambda: stands(handle, RunStatus.WAITING))
        async with version(db, "v2", waits, "auto") as newer:
            await eventually(lambda: has_adopted(newer))
            await client.send(handle.id, "now", "go")
            assert await handle.result(timeout=20) == "as before"
        assert (await client.get_workflow(handle.id)).version == "v2"


async def test_a_body_that_was_changed_without_a_patch_parks_the_run_and_loses_nothing(db: str) -> None:
    """Who says that all changes stand behind patches, and is wrong, finds the run unfinished."""
    async with begun(db, waits) as (client, handle), version(db, "v2", moved, "patched"):
        await client.send(handle.id, "now", "go")
        await eventually(lambda: stands(handle, RunStatus.DELAYED))
