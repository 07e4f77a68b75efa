"""A serializer and a codec for tests, and runs that use them."""

from __future__ import annotations

import json
import secrets
from typing import Any

import perdure
from perdure.errors import PerdureError
from perdure.model.calls import Start
from perdure.model.serialization import Serialization
from perdure.store.clients import ExistingRun

from tests.support.engine import Engine
from tests.support.memorylog import MemoryRun


class Sealed:
    """A serializer that writes the same value otherwise each time, as encryption does."""

    name = "sealed"

    def serialize(self, value: Any) -> str:
        return f"{secrets.token_hex(4)}.{json.dumps(value).encode().hex()}"

    def deserialize(self, text: str) -> Any:
        return json.loads(bytes.fromhex(text.partition(".")[2]))


class Outside:
    """A codec that talks to something outside, which is away for some calls."""

    name = "outside"
    blocking = True

    def __init__(self) -> None:
        self.away = 0
        self.kept: dict[str, str] = {}

    def encode(self, text: str) -> str | None:
        self._ask()
        self.kept[str(len(self.kept))] = text
        return str(len(self.kept) - 1)

    def decode(self, text: str) -> str:
        self._ask()
        return self.kept[text]

    def _ask(self) -> None:
        if self.away:
            self.away -= 1
            raise Away("it is away")


class Away(PerdureError):
    code = "PRD-000"
    retryable = True


SEALED = Sealed()


def seal(value: Any) -> str:
    return f"!sealed:{SEALED.serialize(value)}"


def unseal(text: str | None) -> Any:
    assert text is not None
    assert text.startswith("!sealed:"), text
    return SEALED.deserialize(text.removeprefix("!sealed:"))


def adding(engine: Engine) -> Any:
    @engine.step(name="add")
    async def add(a: int, b: int) -> int:
        engine.bodies.append((a, b))
        return a + b

    @engine.workflow
    async def flow(n: int) -> int:
        first: int = await add(n, 1)
        second: int = await add(first, 2)
        await perdure.sleep(100 if len(engine.bodies) < 3 else 0)
        return second

    return flow


def reaching(engine: Engine, **options: Any) -> Any:
    @engine.workflow
    async def flow() -> None:
        await perdure.send("them", {"n": 1}, "t", **options)
        await perdure.set_event("e", {"n": 2}, **options)
        await perdure.write_stream("s", {"n": 3}, **options)

    return flow


def handed(run: MemoryRun) -> list[str]:
    world = run.world
    return [world.inboxes["them", "t"][0], world.events[run.id, "e"], world.streams[run.id, "s"][0]]


def at(engine: Engine, flow: Any, **options: Any) -> MemoryRun:
    run = engine.run_of(flow, **options)
    run.world.runs["them"] = ExistingRun("them", "default", "x", "[]")
    return run


def choosing(engine: Engine, registered: Any = None, **started: Any) -> Any:
    engine.registry.workflows.clear()

    @perdure.workflow(name="child", registry=engine.registry, serialization=registered)
    async def child(n: int) -> None: ...

    @engine.workflow
    async def flow() -> None:
        await child.options(**started).start(7)

    return flow


async def started(engine: Engine, flow: Any, **options: Any) -> tuple[str, Serialization | None]:
    claim = engine.claim(engine.run_of(flow, **options))
    await claim.ending()
    [start] = [call for call in claim.log.calls if isinstance(call, Start)]
    return start.input, start.options.choice
