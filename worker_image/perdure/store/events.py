"""Events of runs as clients read them: many in one question. How they are set is a call of a run (`store.calls`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from perdure.store.statements import sql


@dataclass(frozen=True, slots=True)
class Published:
    """An event, set or not."""

    run_id: str
    name: str


async def read(connection: asyncpg.Connection[Any], wanted: Sequence[Published]) -> list[str | None]:
    """The value of each as JSON text, None for one that is not set. Ask for a bounded number."""
    rows = await connection.fetch(
        sql("client_events"), [each.run_id for each in wanted], [each.name for each in wanted]
    )
    found = {Published(row["workflow_id"], row["name"]): row["value"] for row in rows}
    return [found.get(each) for each in wanted]
