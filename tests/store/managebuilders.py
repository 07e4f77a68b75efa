"""Runs as the tests of what is done with them want them: ended and failed, with steps, all through the store itself."""

from typing import Any

from perdure.model.management import Managed, Verb
from perdure.model.outcome import Ending, ErrorRecord, Failed, Succeeded
from perdure.model.rows import ClaimedRun, StepWrite
from perdure.store.management import manage

from tests.store.builders import Connection, claim, claimed, failure, finish, start, write
from tests.store.fenced import contents

ERROR = ErrorRecord("E", "m")
NAMELESS: dict[str, Any] = {"name": None}


async def contents_of(conn: Connection) -> dict[str, list[Any]]:
    """All rows but those of workers."""
    return {table: rows for table, rows in (await contents(conn)).items() if rows and table != "workers"}


async def recorded(conn: Connection, run: ClaimedRun, *steps: StepWrite, ending: Ending | None = None) -> None:
    """Each write by itself: one statement has a step once."""
    for step in steps:
        await write(conn, run, step)
    if ending is not None:
        await write(conn, run, ending=ending)


async def do(conn: Connection, verb: Verb, run_id: str = "r1") -> Managed:
    [managed] = await manage(conn, [run_id], verb)
    return managed


async def ended(conn: Connection, run_id: str = "r1", *, steps: int = 3, **fields: Any) -> ClaimedRun:
    """A run that has succeeded with so many steps, each with its index as output."""
    run = await claimed(conn, run_id, **{**NAMELESS, **fields})
    writes: list[StepWrite] = []
    for index in range(steps):
        writes += [start(index, 2 * index + 1), finish(index, 2 * index + 2, output=str(index))]
    await recorded(conn, run, *writes, ending=Succeeded('"done"'))
    return run


async def failed(conn: Connection, run_id: str = "r1", **fields: Any) -> ClaimedRun:
    """A run whose second step failed, and that with it."""
    run = await claimed(conn, run_id, **{**NAMELESS, **fields})
    await recorded(conn, run, start(0, 1), finish(0, 2), start(1, 3), failure(1, 4), ending=Failed(ERROR))
    return run


async def again(conn: Connection, run_id: str = "r1") -> ClaimedRun:
    [run] = [each for each in await claim(conn) if each.id == run_id]
    return run
