"""`perdure dev`: Postgres, workers and a live status on this machine, for as long as the given runs take.

No operator: this reads the files, checks them with the operator's own functions and stores the rows. From there on
everything is as in a cluster: the same statements, the same worker program, the same projection to `.status`.
"""

from __future__ import annotations

import asyncio
import difflib
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import yaml
from rich.console import Console

from perdure.dev import documents, processes
from perdure.dev.documents import Documents
from perdure.dev.postgres import EmbeddedPostgres, ServerOptions
from perdure.dev.processes import WorkerProcess, WorkerSettings
from perdure.dev.view import Status, View
from perdure.errors import ConfigurationError, InvalidResource
from perdure.model.rows import NewRun
from perdure.resources.common import API_VERSION
from perdure.resources.intake import new_run
from perdure.resources.projection import project
from perdure.resources.workflow import KIND, WorkflowResource
from perdure.store import backlog, migrate, pool, runs, status, workers

LEASE_SECONDS = 10.0
"""Shorter than in a cluster: a session that was killed goes on this much later at most when it is started again."""

GRACE_SECONDS = 20.0
"""For a worker to finish its step and give its runs back when the session ends early."""

POLL_SECONDS = 0.15
"""Between two looks at the runs: quicker than the eye, and one small statement."""

MAX_RESTARTS = 5
"""Of workers that end by themselves. A cluster would go on for ever; at a terminal the cause must be seen."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command was asked for. `data` None: a folder that goes with the session."""

    target: Path
    modules: Sequence[str] = ()
    paths: Sequence[Path] = ()
    data: Path | None = None
    workers: int = 1
    kill_at: str | None = None


def run(options: Options) -> bool:
    """Run until all runs have ended; True when all succeeded (and the kill that was asked for took place)."""
    found = documents.read(options.target)
    console = Console(stderr=True)
    with _folder(options.data) as folder:
        return asyncio.run(_Session(options, found, folder, console).run())


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="perdure-dev-") as name:
        Path(name).chmod(0o711)  # started by root, Postgres runs as another user, who must get to its data
        yield Path(name)


@dataclass(slots=True)
class _Group:
    """The workers of one pool in one namespace."""

    settings: WorkerSettings
    live: list[WorkerProcess] = field(default_factory=list)
    manifest: frozenset[str] | None = None
    """Names that its workers have registered; None before one has."""


@dataclass(slots=True)
class _Kill:
    """The kill that was asked for: which run and worker it met, when, and when the run went on."""

    run: str
    pod: str
    at: float
    went_on_after: float | None = None


class _Session:
    def __init__(self, options: Options, found: Documents, folder: Path, console: Console) -> None:
        self._options = options
        self._documents = found
        self._folder = folder
        self._view = View(console)
        self._groups: dict[tuple[str, str], _Group] = {}
        self._numbers = 0
        self._restarts = 0
        self._kill: _Kill | None = None

    async def run(self) -> bool:
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(self._postgres())
            connection = await pool.connect(url, application_name="perdure-dev")
            stack.push_async_callback(connection.close)
            rows = {row.id: row for row in map(new_run, self._documents.workflows)}
            for row in rows.values():
                await runs.upsert(connection, row)
            for workflow in self._documents.workflows:
                self._group(url, workflow)
            stack.push_async_callback(self._stop_workers)
            for group in self._groups.values():
                for _ in range(self._options.workers):
                    await self._start_worker(group)
            with self._view:
                statuses = await self._follow(connection, rows)
        _print(rows, statuses)
        return self._verdict(statuses)

    @asynccontextmanager
    async def _postgres(self) -> AsyncIterator[str]:
        """A migrated database: its URL."""
        started = time.monotonic()
        server = EmbeddedPostgres(self._folder / "postgres", options=ServerOptions(log=self._folder / "postgres.log"))
        await asyncio.to_thread(server.start)
        try:
            await migrate.migrate(server.url())
            self._view.note(f"Postgres is ready after {time.monotonic() - started:.1f}s")
            yield server.url()
        finally:
            await asyncio.to_thread(server.stop)

    # -- workers ------------------------------------------------------------------------------------------------

    def _group(self, url: str, workflow: WorkflowResource) -> None:
        key = (workflow.metadata.namespace, workflow.spec.worker_pool)
        if key in self._groups:
            return
        found = self._documents.pool(key[1])
        modules = self._options.modules or (found.spec.modules if found else ())
        if not modules:
            ignored = f" (passed over: {'; '.join(self._documents.ignored)})" if self._documents.ignored else ""
            raise ConfigurationError(
                f"{workflow.metadata.name}: no WorkerPool {key[1]!r} in {self._options.target} or beside it says which "
                f"modules to load; add one, or name the modules with --module{ignored}"
            )
        self._groups[key] = _Group(
            WorkerSettings(
                database_url=url,
                modules=modules,
                # With the pool's modules its hook; with others that of the environment, if there is one.
                bootstrap=found.spec.bootstrap if found and not self._options.modules else None,
                paths=documents.module_paths(self._options.target, self._options.paths),
                namespace=key[0],
                pool=key[1],
                queues=found.spec.queues if found else [workflow.spec.queue],
                slots=found.spec.slots if found else 4,
                lease_seconds=LEASE_SECONDS,
                log_folder=self._folder,
            )
        )

    async def _start_worker(self, group: _Group) -> None:
        self._numbers += 1
        worker = await processes.start(group.settings, self._numbers)
        group.live.append(worker)
        self._view.note(f"worker {worker.name} starts with {', '.join(group.settings.modules)}")

    async def _stop_workers(self) -> None:
        await asyncio.gather(*(worker.stop(GRACE_SECONDS) for group in self._groups.values() for worker in group.live))

    async def _replace_ended(self, connection: asyncpg.Connection[Any], group: _Group) -> None:
        """What a Deployment would do. One that ends before it has registered will not do better the next time."""
        for worker in [worker for worker in group.live if worker.exit_code is not None]:
            group.live.remove(worker)
            self._restarts += 1
            if group.manifest is None or self._restarts > MAX_RESTARTS:
                raise ConfigurationError(
                    f"worker {worker.name} ended with exit code {worker.exit_code}:\n{worker.last_words()}"
                )
            self._view.note(f"worker {worker.name} ended with exit code {worker.exit_code}; its log is {worker.log}")
            await workers.mark_dead(connection, [worker.pod_uid])
            await self._start_worker(group)

    async def _kill_worker(self, connection: asyncpg.Connection[Any], run_id: str, name: str, shown: Status) -> None:
        """Kill who runs it, as a failing node would, and start another under another name."""
        pod = shown["worker"]["pod"]
        for group in self._groups.values():
            for worker in [worker for worker in group.live if worker.name == pod]:
                await worker.kill()
                ended = await runs.get_status(connection, run_id)
                if ended is None or not ended.finished:  # else the kill came too late to meet it
                    self._kill = _Kill(name, pod, time.monotonic())
                    step = self._options.kill_at
                    self._view.note(f"killed worker {pod} with SIGKILL while {name} was in step {step}")
                group.live.remove(worker)
                # We have seen the process end: proof of death, no need to wait for its lease.
                await workers.mark_dead(connection, [worker.pod_uid])
                await self._start_worker(group)

    # -- what is seen ---------------------------------------------------------------------------------------------

    async def _follow(self, connection: asyncpg.Connection[Any], rows: Mapping[str, NewRun]) -> dict[str, Status]:
        """Show the runs until all have ended; gives their last statuses by name."""
        while True:
            sources = await status.read(connection, list(rows))
            statuses: dict[str, Status] = {rows[source.run.id].name or "": project(source) for source in sources}
            self._view.update(statuses)
            for run_id, row in rows.items():
                if shown := statuses.get(row.name or ""):
                    await self._watch_kill(connection, run_id, row.name or "", shown)
            if all(source.run.status.finished for source in sources):
                return statuses
            for key, group in self._groups.items():
                await self._replace_ended(connection, group)
                if group.manifest is None:
                    await self._read_manifest(connection, key, group)
                self._check_names(rows.values(), key, group)
            await asyncio.sleep(POLL_SECONDS)

    async def _watch_kill(self, connection: asyncpg.Connection[Any], run_id: str, name: str, shown: Status) -> None:
        holder = (shown.get("worker") or {}).get("pod")
        if self._kill is None:
            if holder and _runs_step(shown, self._options.kill_at):
                await self._kill_worker(connection, run_id, name, shown)
        elif self._kill.run == name and self._kill.went_on_after is None and _went_on(shown, self._kill.pod):
            self._kill.went_on_after = time.monotonic() - self._kill.at
            who = f"worker {holder}" if holder else "another worker, and has ended"
            self._view.note(f"{name} goes on in {who}, {self._kill.went_on_after:.1f}s after the kill")

    async def _read_manifest(self, connection: asyncpg.Connection[Any], key: tuple[str, str], group: _Group) -> None:
        live = await backlog.live_workers(connection, *key)
        if live:
            group.manifest = frozenset(name for worker in live for name in worker.manifest)

    def _check_names(self, rows: Any, key: tuple[str, str], group: _Group) -> None:
        """In a cluster such a run waits, and its status says for what; here nobody would ever bring the name."""
        for row in rows:
            if group.manifest is None or (row.namespace, row.pool) != key:
                continue
            for missing in sorted(set(row.requires) - group.manifest):
                raise InvalidResource(f"{row.name}: {_unknown(missing, group.manifest)}")

    def _verdict(self, statuses: Mapping[str, Status]) -> bool:
        succeeded = all(shown.get("phase") == "Succeeded" for shown in statuses.values())
        if self._options.kill_at is None:
            return succeeded
        if self._kill is None:
            self._view.note(f"no worker was killed: step {self._options.kill_at} was never seen running")
        return succeeded and self._kill is not None and self._kill.went_on_after is not None


def _went_on(shown: Status, killed: str) -> bool:
    """Somebody else holds the run, or did: it had not ended when its worker was killed, so another has ended it."""
    holder = (shown.get("worker") or {}).get("pod")
    return holder not in (None, killed) or "finishedAt" in shown


def _runs_step(shown: Status, step: str | None) -> bool:
    return any(each["name"] == step and each["phase"] == "Running" for each in shown.get("steps", []))


def _unknown(missing: str, manifest: frozenset[str]) -> str:
    kind, _, name = missing.partition(":")
    known = sorted(entry.partition(":")[2] for entry in manifest if entry.startswith(f"{kind}:"))
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else "."
    return f"the modules register no {kind} {name}{hint} Registered: {', '.join(known) or 'none'}"


def _print(rows: Mapping[str, NewRun], statuses: Mapping[str, Status]) -> None:
    """The statuses on stdout, as `kubectl get -o yaml` would show them."""
    objects = [
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": row.name, "namespace": row.namespace, "uid": row.id},
            "status": statuses.get(row.name or "", {}),
        }
        for row in rows.values()
    ]
    print(yaml.safe_dump_all(objects, sort_keys=False), end="")  # noqa: T201 - the command's output
