"""The histories of runs, for replays against other code. `Client` takes this function as its method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.engine.calls.arguments import run_id_of
from perdure.errors import NonExistentWorkflow
from perdure.model.history import RunHistory
from perdure.store.exports import export

if TYPE_CHECKING:
    from perdure.client.client import Client


async def export_history(self: Client, run_id: str) -> RunHistory:
    """What is recorded of a run, of any namespace and whatever its status, as it stands now: `perdure replay` runs the
    present code against it. It holds the run's input, results and errors as they are; `to_json()` is the file.

    Raises `NonExistentWorkflow`, `InvalidArgument`, `StoreUnavailable`.
    """
    found = await self._database.persist(export, run_id_of(run_id))
    if found is None:
        raise NonExistentWorkflow(f"there is no run {run_id}")
    return found
