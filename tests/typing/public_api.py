"""Not run: mypy reads it in strict mode (test_public_api.py). What the decorators keep of a function's types."""

import asyncio
from collections.abc import Coroutine
from typing import Any, assert_type

import perdure
from perdure.api import Step, Workflow


@perdure.step
async def charge(cents: int, *, currency: str = "EUR") -> str:
    return f"{cents} {currency}"


@perdure.step
def count(names: list[str]) -> int:
    return len(names)


@perdure.step(name="ship", max_attempts=3, timeout=1.5, should_retry=lambda error: isinstance(error, OSError))
async def ship(order: str) -> None: ...


@perdure.step(max_attempts=2)
def weigh(order: str) -> float:
    return 1.0


@perdure.workflow
async def order(order_id: str) -> dict[str, int]:
    assert_type(charge(1), perdure.PendingStep[str])
    assert_type(await charge(1, currency="USD"), str)
    assert_type(await count(["a"]), int)
    assert_type(await ship("x"), None)
    assert_type(await weigh("x"), float)
    assert_type(await asyncio.gather(charge(1), count([])), tuple[str, int])
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(count([])), asyncio.Task[int])
    assert_type(count.function([]), Any)
    assert_type(perdure.current(), perdure.RunInfo)
    assert_type(perdure.current().step, perdure.StepInfo | None)
    assert_type(charge(1).step_id, int | None)
    return {}


@perdure.workflow(name="named")
async def named() -> int:
    return 1


async def outside(client: perdure.Client) -> None:
    handle = assert_type(await client.start(order, "x"), perdure.Handle[dict[str, int]])
    assert_type(await client.start(order.options(id="x", timeout=1.5), order_id="x"), perdure.Handle[dict[str, int]])
    assert_type(await handle.result(timeout=1), dict[str, int])
    assert_type(await handle.output(), dict[str, int])
    assert_type(await handle.output_raw(), str | None)
    assert_type(await handle.wait(), perdure.RunStatus)
    assert_type(await handle.cancel(), perdure.RunStatus)
    assert_type(await client.run(named), int)
    assert_type(client.handle("x", named), perdure.Handle[int])
    assert_type(client.handle("x"), perdure.Handle[Any])
    assert_type(await client.start_many(named.prepare() for _ in range(3)), list[perdure.Handle[int]])
    assert_type(await client.start_by_name("named"), perdure.Handle[Any])
    await client.send("x", {"any": "value"}, topic="t", key="k")
    assert_type(await client.get_event("x", "name", timeout=1), Any)
    await client.start(order)  # type: ignore[call-arg]
    await client.start(order, 1)  # type: ignore[arg-type]
    await client.run(named, "x")  # type: ignore[call-arg]
    order.prepare(1)  # type: ignore[arg-type]
    order.options(priority="high")  # type: ignore[arg-type]


body: Coroutine[Any, Any, dict[str, int]] = assert_type(order("x"), Coroutine[Any, Any, dict[str, int]])
steps: Step[[str], float] = weigh
flows: Workflow[[], int] = named

charge("1")  # type: ignore[arg-type]
charge()  # type: ignore[call-arg]
charge(1, "EUR")  # type: ignore[call-arg]
ship(order=1)  # type: ignore[arg-type]
perdure.step(max_attempts="3")  # type: ignore[call-overload]
perdure.workflow(lambda: 1)  # type: ignore[arg-type, return-value]
