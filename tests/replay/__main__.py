"""`make histories`: runs the workflows of `flows` on a Postgres of its own and keeps the histories of this release.

Writes those that are not there yet; what is there never changes, as it is what the release has recorded.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import perdure
from perdure.api import default_registry
from perdure.declarative.run import register
from perdure.model.history import RunHistory
from perdure.model.rows import DECLARED_WORKFLOW, NewRun, step_requirement, workflow_requirement
from perdure.store import runs
from perdure.store.pool import connect

from tests.replay import flows
from tests.support.pgwait import eventually
from tests.support.postgres import TEMPLATE, serving
from tests.support.workerproc import working

FOLDER = Path(__file__).parent / "histories"
NAMESPACE = "kept"
DECLARED = {
    "steps": [
        {"name": "first", "task": "kept.add", "with": {"n": 1}},
        {"name": "second", "task": "kept.sync", "with": {"n": 2}, "needs": []},
        {"name": "last", "task": "kept.add", "with": {"n": 3}, "needs": ["first", "second"]},
    ]
}

Make = Callable[[perdure.Client, str], Awaitable[str]]


def run_of(workflow: perdure.api.Workflow[..., object], *args: object) -> Make:  # type: ignore[name-defined]
    """A run of this workflow to its end."""

    async def make(client: perdure.Client, url: str) -> str:
        handle = await client.start(workflow.options(id=f"{flows.IDEMPOTENT}{workflow.name}"), *args)
        await handle.wait(60)
        return handle.id

    return make


async def manages(client: perdure.Client, url: str) -> str:
    """With a run that has failed to be managed."""
    failed = await client.start(flows.child.options(id="kept-failed"), -1)
    await failed.wait(60)
    return await run_of(flows.manages, failed.id)(client, url)


async def waits(client: perdure.Client, url: str) -> str:
    """A run that has not ended."""
    handle = await client.start(flows.waits.options(id="kept-waits"))

    async def parked() -> bool:
        return (await client.get_workflow(handle.id)).status is perdure.RunStatus.WAITING

    await eventually(parked, "it waits")
    return handle.id


async def forked(client: perdure.Client, url: str) -> str:
    """A fork, whose chance is that of the run that it was forked from."""
    handle = await client.fork("kept-kept.values", perdure.Cut.LAST_STEP, flows.values, id="kept-fork")
    await handle.wait(60)
    return handle.id


async def rewound(client: perdure.Client, url: str) -> str:
    """A run that was rewound."""
    handle = await client.start(flows.talks.options(id="kept-rewound"))
    await handle.wait(60)
    handle = await client.rewind(handle.id, 2, flows.talks)
    await handle.wait(60)
    return handle.id


async def declared(client: perdure.Client, url: str) -> str:
    """Declared steps."""
    requires = (workflow_requirement(DECLARED_WORKFLOW), *map(step_requirement, ("kept.add", "kept.sync")))
    connection = await connect(url, application_name="histories")
    try:
        definition = json.dumps(DECLARED)
        new = NewRun("kept-declared", NAMESPACE, None, DECLARED_WORKFLOW, requires, "{}", definition)
        await runs.upsert(connection, new)
    finally:
        await connection.close()
    await client.handle("kept-declared").wait(60)
    return "kept-declared"


MAKERS: dict[str, Make] = {
    "steps": run_of(flows.steps, flows.Item("tea", Decimal("4.20"), flows.Size.LARGE)),
    "values": run_of(flows.values),
    "talks": run_of(flows.talks),
    "parent": run_of(flows.parent),
    "races": run_of(flows.races),
    "manages": manages,
    "patched": run_of(flows.patched),
    "fails": run_of(flows.fails),
    "waits": waits,
    "forked": forked,
    "rewound": rewound,
    "declared": declared,
    "undone": run_of(flows.undone),
    "portable": run_of(flows.in_portable, "Ada"),
    "coded": run_of(flows.coded, [1, 2]),
    "packed": run_of(flows.packed, "kept"),
}

SETTINGS: dict[str, dict[str, Any]] = {
    "coded": {"serializer": flows.Wrapped.name},
    "packed": {"codecs": ("zlib", "aes-gcm")},
}
"""Of the worker that makes a history."""


async def record(url: str, names: list[str]) -> dict[str, RunHistory]:
    """The histories of these."""
    with suppress(perdure.PerdureError):
        register(default_registry)
    found = {}
    for name in names:
        worker = working(url, namespace=NAMESPACE, slots=20, **SETTINGS.get(name, {}))
        async with worker, perdure.Client(url, NAMESPACE) as client:
            found[name] = await client.export_history(await MAKERS[name](client, url))
        default_registry.serializers.use()
    return found


async def main() -> int:
    """Write what is not there."""
    folder = FOLDER / perdure.__version__
    missing = [name for name in MAKERS if not (folder / f"{name}.json").exists()]
    if not missing:
        print(f"nothing to do: {folder} has all histories")
        return 0
    return await asyncio.to_thread(_with_server, folder, missing)


def _with_server(folder: Path, missing: list[str]) -> int:
    with serving() as server:

        async def made() -> dict[str, RunHistory]:
            name = await server.create_database(TEMPLATE)
            # Of those that need another one, all are made.
            return await record(server.url(name), list(MAKERS))

        found = asyncio.run(made())
    folder.mkdir(parents=True, exist_ok=True)
    for name in missing:
        (folder / f"{name}.json").write_text(found[name].to_json(), encoding="utf-8")
        print(f"wrote {folder / name}.json: {len(found[name].steps)} steps, {found[name].status.name}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
