"""What tests of `perdure.select` on the in-memory log share."""

from typing import Any

import perdure

from tests.support.engine import Engine
from tests.support.memorylog import MemoryRun

SELECT = "perdure.select"


def stepping(engine: Engine, name: str, result: Any = None, *, raises: Exception | None = None, **options: Any) -> Any:
    """A step that notes its name and returns it, or something else, or raises."""

    @engine.step(name=name, **options)
    async def step() -> Any:
        engine.bodies.append(name)
        if raises is not None:
            raise raises
        return name if result is None else result

    return step


def deliver(run: MemoryRun, text: str, topic: str = "t") -> None:
    run.world.inboxes.setdefault((run.id, topic), []).append(text)
    run.wake_seq += 1


def shown(won: perdure.Selected[Any]) -> list[Any]:
    return [won.name, won.index, won.value]
