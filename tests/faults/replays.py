"""The histories that runs under faults leave behind, replayed against the code that made them: none may differ."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.api import default_registry
from perdure.replay import replay
from perdure.store.exports import export

from tests.faults import flows
from tests.faults.check import Kind, Problem
from tests.faults.database import Database


async def differing(base: Database, runs: Iterable[str]) -> list[Problem]:
    """Of these runs those whose history does not replay, wherever they stand."""
    assert flows.INTERPRETERS  # registered by its import
    problems = []
    for run_id in runs:
        history = await base.ask(lambda connection, run_id=run_id: export(connection, run_id))
        if history is None:
            continue
        report = await replay(history, registry=default_registry)
        if not report.ok:
            problems.append(Problem(Kind.DIFFERS, run_id, "\n".join(report.lines("its history"))))
    return problems
