"""The histories that runs under faults leave behind, replayed against the code that made them: none may differ."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from perdure.api import default_registry
from perdure.replay import replay
from perdure.store.exports import export

from tests.faults import flows
from tests.faults.check import Kind, Problem
from tests.faults.database import Database

SAY_SECONDS = 10.0


async def differing(base: Database, runs: Collection[str], say: Callable[[str], None]) -> list[Problem]:
    """Of these runs those whose history does not replay, wherever they stand. `say` hears how far it is."""
    assert flows.INTERPRETERS  # registered by its import
    problems = []
    said = time.monotonic()
    for number, run_id in enumerate(runs):
        if time.monotonic() - said > SAY_SECONDS:
            said = time.monotonic()
            say(f"{number} of {len(runs)} histories replayed")
        history = await base.ask(lambda connection, run_id=run_id: export(connection, run_id))
        if history is None:
            continue
        report = await replay(history, registry=default_registry)
        if not report.ok:
            problems.append(Problem(Kind.DIFFERS, run_id, "\n".join(report.lines("its history"))))
    return problems
