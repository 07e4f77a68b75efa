"""Handles of runs that `workflow.start` has started outside of runs, by a launched instance."""

import asyncio
from typing import Any

import perdure
import pytest
from perdure.model.states import RunStatus

SOON = 20.0


async def soon(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, SOON)


async def test_the_handle_of_a_start_outside_of_runs_does_what_that_of_a_client_does(db: str) -> None:
    app = perdure.Instance(db, "ns", run_attempts=1, poll_seconds=0.2)

    @app.workflow(name="listen")
    async def listen() -> Any:
        return await perdure.recv("topic")

    async with app:
        later = await soon(listen.options(delay=3600).start())
        await soon(later.set_attributes({"of": "ann"}))
        await soon(later.set_delay(7200))
        assert (await soon(later.details())).attributes == {"of": "ann"}
        assert await soon(later.cancel()) is RunStatus.CANCELLED
        assert (await soon(later.details())).cancel_reason == "a client cancelled it"
        await soon(later.delete())
        with pytest.raises(perdure.NonExistentWorkflow):
            await soon(later.status())
        handle = await soon(listen.start())
        await soon(handle.send({"n": 1}, "topic", serialization="portable"))
        assert await soon(handle.result()) == {"n": 1}
        assert [step.name for step in await soon(handle.steps())] == ["perdure.recv"]
        assert await soon(handle.resume()) == handle
        copy = await soon(handle.fork(1))
        assert copy != handle
        assert await soon(copy.result()) == {"n": 1}
        again = await soon(handle.rewind(perdure.Cut.BEGINNING))
        assert await soon(again.result()) == {"n": 1}
