"""Workflows for the tests of undoing: what they take they give back."""

import asyncio
from typing import Any

import perdure

from tests.worker.flows import effect, gate


@perdure.step(name="u.take")
async def take(label: str) -> dict[str, str]:
    await effect("taken", label)
    return {"label": label}


@perdure.step(name="u.give_back")
async def give_back(taken: dict[str, str]) -> None:
    await effect("given back", taken["label"])


@perdure.step(name="u.give_back_slowly")
async def give_back_slowly(taken: dict[str, str], name: str) -> None:
    await effect("begun", taken["label"])
    await gate(name)
    await effect("given back", taken["label"])


@perdure.step(name="u.give_back_if")
async def give_back_if(taken: dict[str, str], name: str) -> None:
    await opened.function(name)
    await effect("given back", taken["label"])


@perdure.step(name="u.give_back_later", max_attempts=2, interval=3600)
async def give_back_later(taken: dict[str, str]) -> None:
    raise ConnectionError("later")


@perdure.step(name="u.open")
async def opened(name: str) -> str:
    """Fails until the test has opened the gate."""
    try:
        async with asyncio.timeout(0.1):
            await gate(name)
    except TimeoutError:
        raise ValueError(f"{name} is shut") from None
    return name


@perdure.step(name="u.held")
async def held(name: str) -> None:
    await effect("begun", "held")
    await gate(name)
    await effect("ended", "held")


@perdure.workflow(name="u.order")
async def order(name: str) -> str:
    await take("a").undo(give_back)
    await take("b").undo(give_back)
    return await opened(name)


@perdure.workflow(name="u.slow")
async def slow(name: str, until: str) -> str:
    await take("a").undo(give_back)
    await take("b").undo(give_back_slowly, until)
    return await opened(name)


@perdure.workflow(name="u.half")
async def half(name: str, fixed: str) -> str:
    await take("a").undo(give_back)
    await take("b").undo(give_back_if, fixed)
    await take("c").undo(give_back)
    return await opened(name)


@perdure.workflow(name="u.later")
async def later(name: str) -> str:
    await take("a").undo(give_back_later)
    return await opened(name)


@perdure.workflow(name="u.waits")
async def waits() -> str:
    await take("a").undo(give_back)
    await take("b").undo(give_back)
    return str(await perdure.recv("never"))


@perdure.workflow(name="u.holds")
async def holds(name: str) -> None:
    await take("a").undo(give_back)
    await held(name)


@perdure.workflow(name="u.plain")
async def plain() -> str:
    await take("a")
    return str(await perdure.recv("never"))


@perdure.workflow(name="u.parent")
async def parent() -> None:
    await take("p").undo(give_back)
    await waits.options(id="child").start()
    await perdure.recv("never")


@perdure.workflow(name="u.cancels")
async def cancels(run_id: str) -> str:
    return str(await perdure.cancel(run_id, mode=perdure.CancelMode.COMPENSATE))


@perdure.transaction(name="u.book")
async def book(connection: Any, label: str) -> str:
    await connection.execute("INSERT INTO public.gates VALUES ($1)", label)
    return label


@perdure.transaction(name="u.unbook")
async def unbook(connection: Any, label: str, why: str) -> None:
    await connection.execute("DELETE FROM public.gates WHERE name = $1", label)
    await connection.execute("INSERT INTO public.gates VALUES ($1)", f"{label}: {why}")


@perdure.workflow(name="u.books")
async def books(name: str) -> str:
    await book("seat").undo(unbook, "too late")
    return await opened(name)
