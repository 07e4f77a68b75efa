"""Workflows for the tests of the worker. Their side effects are rows in the test's database, so that processes that
are killed leave a trace: `effects` (what a body did) and `gates` (what a body waits for)."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import asyncpg
import perdure
from perdure.store.pool import connection_errors, database_url, driver_options

TABLES = """
CREATE TABLE public.effects (
    number bigserial PRIMARY KEY, run text NOT NULL, step integer NOT NULL, label text NOT NULL, what text NOT NULL,
    pid integer NOT NULL);
CREATE TABLE public.gates (name text PRIMARY KEY);
"""

IS_OPEN = "SELECT true FROM public.gates WHERE name = $1"
GATE_SECONDS = 0.02


async def _connection() -> "asyncpg.Connection[Any]":
    return await asyncpg.connect(**driver_options(database_url(), {"application_name": "effects"}))


async def effect(what: str, label: str) -> None:
    step = perdure.current().step
    assert step is not None
    connection = await _connection()
    try:
        await connection.execute(
            "INSERT INTO public.effects (run, step, label, what, pid) VALUES ($1, $2, $3, $4, $5)",
            perdure.current().run_id,
            step.index,
            label,
            what,
            os.getpid(),
        )
    finally:
        await connection.close()


async def gate(name: str) -> None:
    """Until the test opens the gate. The database may come and go meanwhile."""
    while True:
        try:
            connection = await _connection()
            try:
                while not await connection.fetchval(IS_OPEN, name):  # noqa: ASYNC110 - another process opens it
                    await asyncio.sleep(GATE_SECONDS)
            finally:
                await connection.close()
        except (asyncpg.PostgresError, *connection_errors):
            await asyncio.sleep(GATE_SECONDS)
        else:
            return


def blocked_until_open(name: str) -> None:
    """Block this thread, loop and all, until the test opens the gate."""
    with ThreadPoolExecutor(1) as beside:
        beside.submit(asyncio.run, gate(name)).result()


@perdure.step
async def nothing(number: int) -> int:
    return number


@perdure.step
async def pause(number: int, seconds: float) -> int:
    await asyncio.sleep(seconds)
    return number


@perdure.step
async def note(label: str) -> str:
    await effect("done", label)
    return label


@perdure.step
async def gated(label: str, name: str) -> str:
    await effect("begun", label)
    await gate(name)
    await effect("ended", label)
    return label


@perdure.step
def blocking(label: str, name: str) -> str:
    blocked_until_open(name)
    return label


@perdure.step
async def stuck(label: str, name: str) -> str:
    """An author's mistake: it blocks the loop."""
    await effect("begun", label)
    blocked_until_open(name)
    await effect("ended", label)
    return label


@perdure.step
async def deaf(label: str) -> None:
    """Does what no step should: it cannot be cancelled."""
    await effect("begun", label)
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@perdure.step
async def failing(message: str) -> None:
    raise ValueError(message)


@perdure.step
async def opaque() -> Any:
    return object()


@perdure.step
async def returning(text: str, times: int) -> str:
    return text * times


@perdure.step(max_attempts=3, interval=0.01)
async def flaky(label: str) -> str:
    await effect("tried", label)
    step = perdure.current().step
    assert step is not None
    if step.attempt < 3:
        raise ConnectionError(f"attempt {step.attempt}")
    return label


@perdure.step(max_attempts=2, interval=1.5)
async def slow_retry(label: str) -> str:
    await effect("tried", label)
    step = perdure.current().step
    assert step is not None
    if step.attempt < 2:
        raise ConnectionError("not yet")
    return label


@perdure.workflow(name="t.no_op")
async def no_op(steps: int) -> int:
    for number in range(steps):
        await nothing(number)
    return steps


@perdure.workflow(name="t.paced")
async def paced(steps: int, seconds: float) -> int:
    for number in range(steps):
        await pause(number, seconds)
    return steps


@perdure.workflow(name="t.notes")
async def notes(labels: list[str]) -> list[str]:
    return [await note(label) for label in labels]


@perdure.workflow(name="t.gated")
async def through_a_gate(name: str) -> list[str]:
    return [await note("before"), await gated("at", name), await note("after")]


@perdure.workflow(name="t.gated_twice")
async def through_two_gates(first: str, second: str) -> list[str]:
    return [await gated("one", first), await gated("two", second), await note("after")]


@perdure.workflow(name="t.sync")
async def sync(name: str) -> str:
    return await blocking("sync", name)


@perdure.workflow(name="t.stuck")
async def loop_blocker(name: str) -> list[str]:
    return [await note("before"), await stuck("at", name), await note("after")]


@perdure.workflow(name="t.deaf")
async def deaf_body() -> None:
    await deaf("deaf")


@perdure.workflow(name="t.fails")
async def fails(message: str) -> None:
    await failing(message)


@perdure.workflow(name="t.opaque")
async def unserialisable() -> Any:
    return await opaque()


@perdure.workflow(name="t.returns")
async def returns(text: str, times: int = 1) -> str:
    return await returning(text, times)


@perdure.workflow(name="t.flaky")
async def retried() -> str:
    return await flaky("flaky")


@perdure.workflow(name="t.slow_retry")
async def retried_slowly() -> str:
    return await slow_retry("slow")


@perdure.workflow(name="t.many_at_once")
async def many_at_once(count: int) -> int:
    return len(await asyncio.gather(*(nothing(number) for number in range(count))))


@perdure.workflow(name="t.suspended_body")
async def suspended_body(name: str) -> str:
    """Waits in the body, not in a step."""
    await note("before")
    await gate(name)
    return await note("after")


@perdure.workflow(name="t.fails_after_a_step")
async def fails_after_a_step(message: str) -> None:
    await note("once")
    await failing(message)


@perdure.workflow(name="t.naps")
async def naps(seconds: float) -> None:
    await note("before")
    await perdure.sleep(seconds)
    await note("after")


@perdure.workflow(name="t.dozes")
async def dozes(seconds: float) -> None:
    await perdure.sleep(seconds)


@perdure.workflow(name="t.naps_beside")
async def naps_beside(seconds: float, name: str) -> None:
    await asyncio.gather(perdure.sleep(seconds), gated("at", name))


@perdure.workflow(name="t.child")
async def child(label: str, gate_name: str = "") -> str:
    if gate_name:
        await gated(label, gate_name)
    return await note(label)


@perdure.workflow(name="t.parent")
async def parent(count: int, gate_name: str = "") -> list[str]:
    handles = await asyncio.gather(*(child.start(f"c{number}", gate_name) for number in range(count)))
    return list(await asyncio.gather(*(handle.result() for handle in handles)))


@perdure.workflow(name="t.parent_of")
async def parent_of(workflow: str, argument: Any) -> str:
    """What its child's end looks like from here."""
    started = await {"t.fails": fails, "t.gated": through_a_gate, "t.no_op": no_op}[workflow].start(argument)
    try:
        return f"returned {await started.result()!r}"
    except perdure.PerdureError as error:
        return f"raised {error.code}"
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"


@perdure.workflow(name="t.ping")
async def ping(other: str, rounds: int) -> int:
    for number in range(rounds):
        await perdure.send(other, number, "ping")
        assert await perdure.recv("pong") == number
    return rounds


@perdure.workflow(name="t.pong")
async def pong(other: str, rounds: int) -> int:
    for _ in range(rounds):
        await perdure.send(other, await perdure.recv("ping"), "pong")
    return rounds


@perdure.workflow(name="t.collects")
async def collects(count: int) -> list[int]:
    return [await perdure.recv("numbers") for _ in range(count)]


@perdure.workflow(name="t.sends")
async def sends(to: str, first: int, count: int) -> None:
    for number in range(first, first + count):
        await perdure.send(to, number, "numbers")


@perdure.workflow(name="t.hears")
async def hears(topic: str, seconds: float | None = None) -> Any:
    return await perdure.recv(topic, seconds)


@perdure.workflow(name="t.publishes")
async def publishes(name: str, gate_name: str) -> None:
    await gated("at", gate_name)
    await perdure.set_event(name, {"is": "there"})


@perdure.workflow(name="t.expects")
async def expects(run_id: str, name: str, seconds: float | None = None) -> Any:
    return await perdure.get_event(run_id, name, seconds)


@perdure.workflow(name="t.fan")
async def fan(count: int) -> int:
    handles = await asyncio.gather(*(no_op.start(1) for _ in range(count)))
    return len(await asyncio.gather(*(handle.result() for handle in handles)))
