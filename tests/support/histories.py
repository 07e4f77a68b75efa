"""Histories of runs in memory, and of what a replay of them says."""

from __future__ import annotations

from typing import Any

from perdure.model.history import RunHistory
from perdure.model.outcome import Cancelled, Ending, Failed, Succeeded
from perdure.model.states import RunStatus
from perdure.replay import Report, replay

from tests.support.engine import Engine
from tests.support.memorylog import MemoryRun


def history_of(run: MemoryRun, ending: Ending | None = None) -> RunHistory:
    """What is exported of a run that has ended so; None: it has not."""
    status, output, error = RunStatus.RUNNING, None, None
    match ending:
        case Succeeded(text):
            status, output = RunStatus.SUCCEEDED, text
        case Failed(record):
            status, error = RunStatus.FAILED, record.to_json()
        case Cancelled():
            status = RunStatus.CANCELLED
    return RunHistory(
        id=run.id,
        namespace="default",
        workflow=run.workflow,
        status=status,
        input=run.input,
        steps=tuple(row for _, row in sorted(run.rows.items())),
        definition=run.definition,
        output=output,
        error=error,
        rewinds=run.rewinds,
        seed=run.seed,
    )


async def recorded(engine: Engine, flow: Any, *args: Any, **options: Any) -> RunHistory:
    """The history of a run of this workflow, executed once."""
    run = engine.run_of(flow, *args)
    return history_of(run, await engine.execute(run, **options))


async def replayed(history: RunHistory, engine: Engine, *, strict: bool = False) -> Report:
    """Through the text of a file, as from a file."""
    return await replay(RunHistory.from_json(history.to_json()), registry=engine.registry, strict=strict)


NEVER_RUN = "the body of a step ran in a replay"


def steps_of(engine: Engine, *names: str) -> list[Any]:
    def one(name: str) -> Any:
        async def body(n: int) -> int:
            return n + 1

        return engine.step(body, name=name)

    return [one(name) for name in names]


def never_run(engine: Engine, *names: str) -> list[Any]:
    def one(name: str) -> Any:
        async def body(n: int) -> int:
            raise AssertionError(NEVER_RUN)

        return engine.step(body, name=name)

    return [one(name) for name in names]


async def two_steps(engine: Engine) -> Any:
    first, second = steps_of(engine, "first", "second")

    @engine.workflow
    async def order(n: int) -> int:
        return int(await second(await first(n)))

    return order
