"""What the end-to-end tests say in one line: apply a run, wait for something about it, count what its steps did.

kubectl does what a user would do; the database is looked at only where the resource cannot know (how often a body
ran, what a row says). Nothing sleeps: `until` polls with a deadline, gates hold a step in its middle.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from tests.cluster.release import Release
from tests.support.pgwait import eventually

FLOWS = Path(__file__).with_name("e2e_flows.py")
SECONDS = 90.0
"""For anything that a healthy cluster does in a few: the machine may be busy with other tests."""

LEDGER = """
CREATE SCHEMA IF NOT EXISTS e2e;
CREATE TABLE IF NOT EXISTS e2e.effects
    (run text NOT NULL, label text NOT NULL, pod text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
"""

Status = dict[str, Any]


@dataclass(frozen=True)
class Effect:
    """One time that the body of a step ran."""

    label: str
    pod: str


class EndToEnd:
    """The installed release with a connection to its database."""

    def __init__(self, release: Release, connection: asyncpg.Connection[Any], url: str) -> None:
        self.release = release
        self.kubectl = release.kubectl
        self.connection = connection
        self._url = url

    # -- pools and runs -------------------------------------------------------------------------------------------

    async def pool(self, name: str, *, ready: int = 1, **spec: Any) -> None:
        """A WorkerPool of the test's own, with so many pods ready."""
        await asyncio.to_thread(self.release.worker_pool, name, FLOWS, **{"scaling": {"min": ready, "max": 4}, **spec})
        await self.until_pool(name, lambda status: status.get("readyReplicas", 0) >= ready, f"{ready} ready pods")

    async def apply(self, name: str, pool: str, **spec: Any) -> None:
        """A Workflow in that pool."""
        workflow = {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "Workflow",
            "metadata": {"name": name},
            "spec": {"workerPool": pool, **spec},
        }
        await asyncio.to_thread(self.kubectl.apply, [workflow])

    async def line(self, name: str, pool: str, labels: Sequence[str], *, gated: str = "", gate: int = 0) -> None:
        """A run of one step for each label; `gated` stands at the gate."""
        arguments = {"labels": list(labels), "gated": gated, "gate": gate}
        await self.apply(name, pool, workflow="e2e.line", input=arguments)

    async def patch(self, name: str, spec: dict[str, Any]) -> None:
        patch = json.dumps({"spec": spec})
        await asyncio.to_thread(self.kubectl.run, "patch", "workflow", name, "--type=merge", f"--patch={patch}")

    async def delete(self, *arguments: str) -> None:
        await asyncio.to_thread(self.kubectl.run, "delete", *arguments)

    async def run(self, *arguments: str) -> str:
        """What kubectl prints."""
        return await asyncio.to_thread(self.kubectl.run, *arguments)

    # -- looking --------------------------------------------------------------------------------------------------

    async def get(self, *arguments: str) -> Any:
        return await asyncio.to_thread(self.kubectl.get, *arguments)

    async def uid(self, name: str) -> str:
        """Id of the run behind a Workflow."""
        return str((await self.get("workflow", name))["metadata"]["uid"])

    async def until(self, name: str, check: Callable[[Status], Any], what: str, seconds: float = SECONDS) -> Status:
        """The run's status when `check` is true of it."""
        return await self._until("workflow", name, check, what, seconds)

    async def until_pool(
        self, name: str, check: Callable[[Status], Any], what: str, seconds: float = SECONDS
    ) -> Status:
        return await self._until("workerpool", name, check, what, seconds)

    async def _until(self, kind: str, name: str, check: Callable[[Status], Any], what: str, seconds: float) -> Status:
        last: Status = {}

        async def met() -> bool:
            nonlocal last
            last = (await self.get(kind, name)).get("status", {})
            return bool(check(last))

        try:
            await eventually(met, f"{what} of {kind} {name}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; its status: {last}") from None
        return last

    async def finished(self, name: str, seconds: float = SECONDS) -> Status:
        """Its status, when `kubectl wait` says that it has ended."""
        wait = ["wait", "--for=condition=Finished", f"workflow/{name}", f"--timeout={seconds:.0f}s"]
        await asyncio.to_thread(lambda: self.kubectl.run(*wait, seconds=seconds + 30))
        status: Status = (await self.get("workflow", name))["status"]
        return status

    async def row(self, uid: str) -> asyncpg.Record:
        """What Postgres knows of a run."""
        return await self.connection.fetchrow("SELECT * FROM perdure.workflows WHERE id = $1", uid)

    # -- effects and gates ----------------------------------------------------------------------------------------

    async def effects(self, uid: str) -> list[Effect]:
        """Each time that a step body of this run began, in order."""
        rows = await self.connection.fetch("SELECT label, pod FROM e2e.effects WHERE run = $1 ORDER BY at", uid)
        return [Effect(row["label"], row["pod"]) for row in rows]

    async def counts(self, uid: str) -> dict[str, int]:
        """How often each step body of this run began."""
        labels = [effect.label for effect in await self.effects(uid)]
        return {label: labels.count(label) for label in sorted(set(labels))}

    async def until_effect(self, uid: str, label: str, times: int = 1) -> Effect:
        """The newest time that this step's body began, when there are so many."""

        async def enough() -> bool:
            return (await self.counts(uid)).get(label, 0) >= times

        await eventually(enough, f"{label} begun {times} time(s)", SECONDS)
        return [effect for effect in await self.effects(uid) if effect.label == label][-1]

    @asynccontextmanager
    async def gate(self, number: int) -> AsyncIterator[None]:
        """Closed for as long as the block lasts: steps that stand at it go on when it is left."""
        keeper = await asyncpg.connect(self._url)
        try:
            await keeper.execute("SELECT pg_advisory_lock($1)", number)
            yield
        finally:
            await keeper.close()


async def _connect(url: str) -> asyncpg.Connection[Any] | None:
    try:
        return await asyncpg.connect(url)
    except (asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError, OSError):
        return None


@asynccontextmanager
async def end_to_end(release: Release) -> AsyncIterator[EndToEnd]:
    """For one test. The database may just be on its way up again after the last one."""
    with release.database() as url:
        connection = await eventually(lambda: _connect(url), "the database to answer", SECONDS)
        try:
            await connection.execute(LEDGER)
            yield EndToEnd(release, connection, url)
        finally:
            await connection.close()
