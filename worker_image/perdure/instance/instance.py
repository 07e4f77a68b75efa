"""An instance: workflows, a client, and from its launch on a worker that runs them in this very process.

Made by programs. Promises: what a worker promises, since it has one; a call before the launch and after the shutdown
raises `NotLaunched` and does nothing; a shutdown leaves what it interrupts claimable by any worker.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from perdure.api.starts import PreparedStart
from perdure.api.steps import step
from perdure.api.transactions import transaction
from perdure.api.workflows import workflow
from perdure.client.client import Client
from perdure.client.handle import Handle
from perdure.client.starts import arguments_of
from perdure.engine.codec import encode
from perdure.engine.context import current_scope, outside_of_bodies
from perdure.engine.encoding import input_encoding
from perdure.engine.registry import Registry, WorkflowDefinition
from perdure.engine.serialization import Codec, Serializer, Serializers
from perdure.errors import AlreadyLaunched, Interrupted, NotLaunched, NotRegistered, PerdureError, WrongInstance
from perdure.instance.decorators import RegisterStep, RegisterTransaction, RegisterWorkflow
from perdure.instance.handle import LaunchedHandle
from perdure.instance.life import NEXT, OPEN, Life
from perdure.instance.resident import LateResident
from perdure.model.start import StartOptions
from perdure.model.versions import VersionPolicy
from perdure.worker.settings import WorkerSettings
from perdure.worker.worker import Worker

_launched: set[Instance] = set()
"""What is launched stays, whether or not anybody holds it: workflows start runs through it."""


class InstanceSettings(TypedDict, total=False):
    """How the worker of an instance works: see the settings of a worker. Times in seconds."""

    slots: int
    queues: tuple[str, ...]
    version: str
    version_policy: VersionPolicy
    threads: int
    run_attempts: int
    retry_backoff_seconds: float
    poll_seconds: float
    lease_seconds: float
    drain_seconds: float
    retention_seconds: float
    transaction_connections: int
    journal_connections: int


class Instance(Client):
    """Workflows, and a worker that runs them in this process; beside that it is a `Client` with all its calls.

    app = perdure.Instance("postgresql://…")

    @app.workflow
    async def greet(name: str) -> str:
        return f"hello {name}"

    async with app:
        handle = await greet.start("Ada")
        print(await handle.result())

    `url`, `namespace`, `pool`, `listen`, `serializer` and `codecs` as for `Client`, the last two also for its worker;
    `registry`: where its workflows are, a new one if none is given; the rest as for a worker (`InstanceSettings`). Runs
    that start here begin in the worker's free slots at once. Use it on one event loop. A registry belongs to one
    instance.

    Raises `ConfigurationError` for settings that cannot be used, `AlreadyLaunched` for a registry that belongs to
    another instance.
    """

    def __init__(
        self,
        url: str | None = None,
        namespace: str = "default",
        pool: str = "default",
        *,
        registry: Registry | None = None,
        listen: bool = True,
        exit_process: Callable[[int], None] = os._exit,
        serializer: Serializer | None = None,
        codecs: Sequence[Codec] = (),
        **settings: Unpack[InstanceSettings],
    ) -> None:
        """`exit_process` ends the process when its lease is long gone and bodies do not stop."""
        self._resident = LateResident()
        self.registry = Registry() if registry is None else registry
        super().__init__(
            url, namespace, pool, listen=listen, worker=self._resident, serializer=serializer, codecs=codecs
        )
        self._settings = WorkerSettings(namespace=namespace, pool=pool, **settings)
        if self.registry.instance is not None:
            raise AlreadyLaunched("the registry belongs to another instance, which has not been shut down")
        self.registry.instance = self
        self.registry.serializers = self.serializers
        self.life = Life.NEW
        self._exit_process = exit_process
        self._worker: Worker | None = None
        self._database.gate = self._watcher.gate = self._check
        self._watcher.farewell = _interrupted

    # -- its workflows

    @property
    def workflow(self) -> RegisterWorkflow:
        """`perdure.workflow`, for this instance."""
        register: Any = partial(workflow, registry=self.registry)
        return register  # type: ignore[no-any-return]

    @property
    def step(self) -> RegisterStep:
        """`perdure.step`, for this instance."""
        register: Any = partial(step, registry=self.registry)
        return register  # type: ignore[no-any-return]

    @property
    def transaction(self) -> RegisterTransaction:
        """`perdure.transaction`, for this instance."""
        register: Any = partial(transaction, registry=self.registry)
        return register  # type: ignore[no-any-return]

    # -- its life

    async def launch(self) -> Self:
        """Begin to run workflows: those that are started here, and all that wait in its pool, what an earlier process
        has left among them. Returns when the worker has registered, and waits for the database until then.

        No workflow can be registered any more. Raises `AlreadyLaunched`, also after a shutdown, and
        `RegistrationError`. When it raises, or is cancelled, the instance may be launched again.
        """
        self._go(Life.LAUNCHING, AlreadyLaunched)
        self.registry.freeze("its instance is launched")
        try:
            worker = await self._working()
        except BaseException:
            self.registry.thaw()
            self._go(Life.NEW, AlreadyLaunched)
            raise
        self._worker = worker
        self._resident.there_is(worker.resident)
        _launched.add(self)
        self._go(Life.LAUNCHED, AlreadyLaunched)
        return self

    async def shutdown(self) -> None:
        """Stop cleanly: steps in progress end and are recorded, their runs can be claimed by any worker. Whoever still
        waits here for a run gets `Interrupted`. May be called twice, and before a launch. Raises what ended the worker,
        if it had ended by itself.
        """
        if self.life is Life.STOPPED:
            return
        if self.life is Life.NEW:
            self._go(Life.STOPPED, NotLaunched)
            await super().close()
            self._release()
            return
        self._go(Life.STOPPING, NotLaunched)
        try:
            assert self._worker is not None
            await self._worker.stop()
        finally:
            await super().close()
            self._go(Life.STOPPED, NotLaunched)
            self._release()

    async def close(self) -> None:
        """As `shutdown`."""
        await self.shutdown()

    async def __aenter__(self) -> Self:
        return await self.launch()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def _working(self) -> Worker:
        worker = Worker(self._settings, self.registry, database_url=self._address, exit_process=self._exit_process)
        await worker.start()
        try:
            await worker.wait_until_working()
        except BaseException:
            await asyncio.shield(worker.stop())
            raise
        return worker

    def _release(self) -> None:
        _launched.discard(self)
        self._worker = None
        self.registry.thaw()
        if self.registry.instance is self:
            self.registry.instance = None

    def _go(self, life: Life, error: type[PerdureError]) -> None:
        if life not in NEXT[self.life]:
            raise error(f"the instance {self.life}")
        self.life = life

    # -- starts

    async def start_by_name(
        self,
        workflow: str,
        arguments: Sequence[Any] | Mapping[str, Any] = (),
        options: StartOptions | None = None,
    ) -> Handle[Any]:
        """Start a workflow of this instance by its name: raises `NotRegistered` for any other. What the workflow was
        registered with counts, and the result has its type. Else as `Client.start_by_name`."""
        definition = self.registry.workflows.get(workflow)
        if definition is None:
            raise NotRegistered(f"no workflow {workflow} is registered with this instance")
        given = arguments_of(workflow, arguments)
        options = options or StartOptions()
        encoding = input_encoding(options.choice or definition.serialization)
        text = encode(given, f"the input of workflow {workflow}", encoding)
        return await self._start(PreparedStart(workflow, given, text, options, definition))

    async def start_given(
        self, definition: WorkflowDefinition, given: Sequence[Any], input_text: str, options: StartOptions
    ) -> LaunchedHandle[Any]:
        """For `Workflow.start` outside of runs."""
        prepared: PreparedStart[Any] = PreparedStart(definition.name, given, input_text, options, definition)
        return LaunchedHandle(await self._start(prepared), definition)

    async def run_given(
        self, definition: WorkflowDefinition, given: Sequence[Any], input_text: str, options: StartOptions
    ) -> Any:
        """For `Workflow.run` outside of runs."""
        return await self._run(PreparedStart(definition.name, given, input_text, options, definition))

    def _known(self) -> Serializers:
        return self.registry.serializers

    def _outside_of_runs(self, what: str, instead: str) -> None:
        self._refuse_foreign(what)
        super()._outside_of_runs(what, instead)
        self._check(what)

    def _check(self, what: str) -> None:
        """Raises unless a call can be made here and now."""
        self._refuse_foreign(what)
        outside_of_bodies(what)
        if self.life not in OPEN:
            raise NotLaunched(f"{what}, and the instance {self.life}")

    def _refuse_foreign(self, what: str) -> None:
        scope = current_scope.get()
        if scope is not None and scope.execution.registry is not self.registry:
            raise WrongInstance(f"{what} in run {scope.execution.claimed.id}, which another instance executes")


def _interrupted(run_id: str) -> PerdureError:
    return Interrupted(
        f"the instance was shut down before run {run_id} had ended; stored, it goes on elsewhere", run_id
    )
