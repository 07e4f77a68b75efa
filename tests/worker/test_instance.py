"""Instances: a worker and a client in the program itself, from launch to shutdown."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import perdure
import pytest
from perdure.api import default_registry
from perdure.engine.registry import Registry
from perdure.errors import (
    AlreadyLaunched,
    ConfigurationError,
    InsideStep,
    InsideWorkflow,
    Interrupted,
    NotLaunched,
    NotRegistered,
    RegistrationError,
    WrongInstance,
)
from perdure.instance.life import NEXT, Life
from perdure.model.states import RunStatus
from perdure.worker.link import Connection

from tests.support.pgwait import eventually

SOON = 20.0

Make = Callable[..., perdure.Instance]


@pytest.fixture
async def make(db: str) -> AsyncIterator[Make]:
    """Instances that are shut down at the end of the test."""
    made: list[perdure.Instance] = []

    def instance(**settings: Any) -> perdure.Instance:
        app = perdure.Instance(db, "ns", **{"run_attempts": 1, "poll_seconds": 0.2, "lease_seconds": 5.0, **settings})
        made.append(app)
        return app

    yield instance
    for each in made:
        await each.shutdown()


def greeter(app: perdure.Instance, name: str = "greet") -> Any:
    @app.workflow(name=name)
    async def greet(who: str) -> str:
        return f"hello {who}"

    return greet


async def soon(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, SOON)


# -- its life


async def test_a_launched_instance_runs_what_is_started_through_its_workflows(make: Make) -> None:
    app = make()
    greet = greeter(app)
    async with app:
        handle = await soon(greet.start("Ada"))
        assert await soon(handle.result()) == "hello Ada"
        assert await soon(handle.status()) is RunStatus.SUCCEEDED
        assert await soon(handle.outside.result(timeout=SOON)) == "hello Ada"
        assert await soon(greet.run("Bob")) == "hello Bob"
        assert greet.start("Eve").step_id is None


async def test_an_instance_is_a_client(make: Make) -> None:
    app = make()
    greet = greeter(app)
    async with app:
        assert await soon(app.run(greet, "Ada")) == "hello Ada"
        handle = await soon(app.start(greet.options(id="mine"), "Bob"))
        assert await soon(app.handle("mine", greet).result()) == "hello Bob"
        assert await soon(app.start_by_name("greet", ["Bob"], perdure.StartOptions(id="mine"))) == handle


async def test_a_run_begins_in_a_free_slot_of_the_instance_itself(make: Make, conn: Connection) -> None:
    app = make(poll_seconds=5.0, lease_seconds=10.0)
    greet = greeter(app)
    async with app:
        await soon(greet.options(id="mine").run("Ada"))
        assert await conn.fetchval("SELECT ended_fence FROM perdure.workflows WHERE id = 'mine'") == 1


async def test_a_launch_goes_on_with_what_an_earlier_process_has_left(make: Make, db: str) -> None:
    app = make()
    greet = greeter(app)
    async with perdure.Client(db, "ns") as client:
        left = await client.start(greet, "Ada")
        async with app:
            assert await left.result(SOON) == "hello Ada"


async def test_before_the_launch_and_after_the_shutdown_calls_are_refused_and_write_nothing(
    make: Make, conn: Connection
) -> None:
    app = make()
    greet = greeter(app)

    async def all_refused() -> None:
        calls: list[Callable[[], Any]] = [
            lambda: greet.start("Ada"),
            lambda: greet.run("Ada"),
            lambda: app.start(greet, "Ada"),
            lambda: app.run(greet, "Ada"),
            lambda: app.start_many([greet.prepare("Ada")]),
            lambda: app.start_by_name("greet", ["Ada"]),
            lambda: app.start_in(conn, greet, "Ada"),
            lambda: app.send("mine", 1),
            lambda: app.get_event("mine", "e"),
            lambda: app.handle("mine").status(),
            lambda: app.handle("mine").result(),
            lambda: app.handle("mine").cancel(),
        ]
        for call in calls:
            with pytest.raises(NotLaunched):
                await soon(call())

    await all_refused()
    await app.launch()
    handle = await soon(greet.start("Ada"))
    await soon(handle.result())
    await app.shutdown()
    await all_refused()
    with pytest.raises(NotLaunched):
        await soon(handle.result())
    assert await conn.fetchval("SELECT count(*) FROM perdure.workflows") == 1


async def test_a_second_launch_is_refused_also_after_the_shutdown(make: Make) -> None:
    app = make()
    await app.launch()
    with pytest.raises(AlreadyLaunched, match="is launched"):
        await app.launch()
    await app.shutdown()
    await app.shutdown()
    with pytest.raises(AlreadyLaunched, match="has been shut down"):
        await app.launch()


async def test_no_workflow_can_be_registered_after_the_launch(make: Make) -> None:
    app = make()
    greet = greeter(app)
    async with app:
        with pytest.raises(AlreadyLaunched, match="workflow late cannot be registered any more"):
            greeter(app, "late")
        # A step comes with a module that is imported late, and the same function again is no news.
        app.step(name="late")(lambda: None)
        app.workflow(name="greet")(greet.function)
        assert await soon(greet.run("Ada")) == "hello Ada"


async def test_a_launch_that_fails_may_be_tried_again(make: Make) -> None:
    app = make()

    @app.workflow(name="bad")
    async def bad(value: "Nothing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(RegistrationError):
        await app.launch()
    assert app.life is Life.NEW
    del app.registry.workflows["bad"]
    greet = greeter(app)
    async with app:
        assert await soon(greet.run("Ada")) == "hello Ada"


async def test_a_launch_that_is_given_up_leaves_no_worker(make: Make) -> None:
    app = perdure.Instance("postgresql://nobody@127.0.0.1:1/nowhere", "ns")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await app.launch()
    assert app.life is Life.NEW
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "worker"]
    await app.shutdown()


@pytest.mark.parametrize(
    "settings", [{"slots": 0}, {"slots": "many"}, {"unheard_of": 1}, {"poll_seconds": 4.0, "lease_seconds": 5.0}]
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        perdure.Instance("postgresql://localhost/x", "ns", **settings)


def test_an_address_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        perdure.Instance("mysql://localhost/x")


def test_the_table_of_lives_has_every_state() -> None:
    assert NEXT.keys() == set(Life)


# -- shutdown


async def test_a_shutdown_leaves_what_it_interrupts_claimable_and_tells_who_waits(
    make: Make, db: str, conn: Connection
) -> None:
    app = make()

    @app.step(name="wait")
    async def wait() -> str:
        begun.set()
        await go.wait()
        return "done"

    @app.workflow(name="slow")
    async def slow() -> str:
        first = await wait()
        await perdure.sleep(0.5)
        return first

    begun, go = asyncio.Event(), asyncio.Event()
    await app.launch()
    mine = slow.options(id="mine")
    handle = await soon(mine.start())
    waits = [asyncio.ensure_future(each) for each in (handle.result(), mine.run(), app.run(mine))]
    await soon(begun.wait())
    stopping = asyncio.ensure_future(app.shutdown())
    go.set()
    await soon(stopping)
    for each in waits:
        with pytest.raises(Interrupted) as interrupted:
            await soon(each)
        assert (interrupted.value.retryable, interrupted.value.run_id) == (True, "mine")

    row = await conn.fetchrow("SELECT status, worker_id, recoveries FROM perdure.workflows WHERE id = 'mine'")
    assert row is not None
    assert RunStatus(row["status"]) in {RunStatus.ENQUEUED, RunStatus.WAITING}
    assert (row["worker_id"], row["recoveries"]) == (None, 0)
    begun, go = asyncio.Event(), asyncio.Event()
    async with perdure.Instance(db, "ns", registry=app.registry):
        assert await soon(mine.run()) == "done"
    assert not begun.is_set(), "the step was recorded and does not run again"


# -- several


async def test_several_instances_run_their_own_workflows(make: Make) -> None:
    red, blue = make(queues=("red",)), make(queues=("blue",))
    red_greet, blue_greet = greeter(red), greeter(blue, "greet.blue")
    async with red, blue:
        handles = [
            await red_greet.options(queue="red").start("red"),
            await blue_greet.options(queue="blue").start("blue"),
        ]
        assert [await soon(handle.result()) for handle in handles] == ["hello red", "hello blue"]


async def test_a_registry_belongs_to_one_instance(make: Make, db: str) -> None:
    app = make()
    with pytest.raises(AlreadyLaunched, match="belongs to another instance"):
        perdure.Instance(db, "ns", registry=app.registry)
    await app.shutdown()
    make(registry=app.registry)


async def test_a_call_of_one_instance_in_a_run_of_another_is_refused(make: Make) -> None:
    red, blue = make(), make(pool="blue")
    blue_greet = greeter(blue)

    async def refusals(calls: list[Callable[[], Any]]) -> int:
        count = 0
        for call in calls:
            try:
                await call()
            except WrongInstance:
                count += 1
        return count

    calls: list[Callable[[], Any]] = [
        lambda: blue.start(blue_greet, "x"),
        lambda: blue.run(blue_greet, "x"),
        lambda: blue.handle("x").status(),
        lambda: blue.send("x", 1),
    ]

    @red.step(name="in_step")
    async def in_step() -> int:
        return await refusals(calls)

    @red.workflow(name="visits")
    async def visits() -> list[int]:
        in_body = await refusals([*calls, lambda: blue_greet.start("x"), lambda: blue_greet.run("x")])
        return [in_body, await in_step()]

    async with red, blue:
        assert await soon(visits.run()) == [6, 4]


async def test_in_its_own_runs_a_workflow_starts_a_child_and_the_instance_starts_nothing(make: Make) -> None:
    app = make()
    greet = greeter(app)

    @app.step(name="in_step")
    async def in_step() -> bool:
        with pytest.raises(InsideStep):
            await app.start(greet, "x")
        return True

    @app.workflow(name="parent")
    async def parent() -> list[Any]:
        with pytest.raises(InsideWorkflow):
            await app.start(greet, "x")
        child = await greet.start("Ada")
        return [child.id, await child.result(), await greet.run("Bob"), await in_step()]

    async with app:
        assert await soon(parent.options(id="p").run()) == ["p-0", "hello Ada", "hello Bob", True]


async def test_a_name_that_is_not_registered_is_refused(make: Make) -> None:
    app = make()
    async with app:
        with pytest.raises(NotRegistered, match="no workflow nobody"):
            await app.start_by_name("nobody")


# -- references


async def test_a_reference_starts_runs_although_nobody_holds_the_instance(make: Make, db: str) -> None:
    app = perdure.Instance(db, "ns")
    greet = greeter(app)
    await app.launch()
    there = weakref.ref(app)
    del app
    gc.collect()
    assert await soon(greet.run("Ada")) == "hello Ada"
    instance = there()
    assert instance is not None
    await instance.shutdown()


async def test_a_reference_does_not_keep_its_instance_alive(db: str) -> None:
    new, stopped = perdure.Instance(db, "ns"), perdure.Instance(db, "ns")
    kept = [greeter(new), greeter(stopped)]
    await stopped.launch()
    await stopped.shutdown()
    there = [weakref.ref(new), weakref.ref(stopped)]
    del new, stopped
    # What the shutdown has left in the loop lets go in its next turns.

    async def gone() -> bool:
        gc.collect()
        return [each() for each in there] == [None, None]

    await eventually(gone, "the instances are gone")
    for greet in kept:
        with pytest.raises(NotLaunched, match="no instance that has it is launched"):
            await greet.start("Ada")


# -- the default registry


async def test_the_default_registry_has_an_instance_of_its_own(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Registry()
    monkeypatch.setattr("perdure.api.registering.default_registry", mine)

    @perdure.workflow(name="greet")
    async def greet(who: str) -> str:
        return f"hello {who}"

    await perdure.shutdown()
    with pytest.raises(NotLaunched):
        await greet.start("Ada")
    app = await perdure.launch(db, "ns", poll_seconds=0.2)
    assert app.registry is mine
    assert await soon(greet.run("Ada")) == "hello Ada"
    with pytest.raises(AlreadyLaunched):
        await perdure.launch(db, "ns")
    await perdure.shutdown()
    with pytest.raises(NotLaunched):
        await greet.start("Ada")
    await perdure.launch(db, "ns", poll_seconds=0.2)
    assert await soon(greet.run("Bob")) == "hello Bob"
    await perdure.shutdown()
    assert default_registry is not mine
