"""Start workflows and wait for them from any asyncio program: needs a database URL and nothing else.

The statements stand in `store/clients`; what a run's row means to a caller in `outcome`; the waiting in `watcher`.
Keeps one promise above all: a start that has returned is durable, and one whose answer was lost may be made again
with the same id.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload

import asyncpg

from perdure.api import registering
from perdure.api.debounce import check_debounce
from perdure.api.starts import PreparedStart
from perdure.api.workflows import Workflow
from perdure.client import exporting, management, reading
from perdure.client.creating import Creator
from perdure.client.database import Database
from perdure.client.handle import POLL_SECONDS, Handle, limit_of
from perdure.client.messages import Outgoing, send_message
from perdure.client.news import News
from perdure.client.queues import Queues
from perdure.client.resident import Resident
from perdure.client.schedules import Schedules
from perdure.client.several import join, select
from perdure.client.starts import arguments_of, batches, startable, stored_row_of
from perdure.client.waits import Waits
from perdure.client.watcher import Watcher
from perdure.engine import errortypes
from perdure.engine.calls.arguments import run_id_of
from perdure.engine.codec import encode
from perdure.engine.context import outside_of_runs
from perdure.engine.encoding import input_encoding
from perdure.engine.registry import WorkflowDefinition
from perdure.engine.serialization import Codec, Serializer, Serializers
from perdure.errors import ClientClosed
from perdure.model.serialization import Serialization, SerializationName
from perdure.model.start import ID_MAX, NAME_MAX, Seconds, StartOptions, check_text
from perdure.store.clients import RunStart
from perdure.store.debounce import Debounce, debounce
from perdure.store.pool import checked_url, database_url
from perdure.store.pooler import VARIABLE as POOLER_VARIABLE
from perdure.store.pooler import pooled, with_pooler

P = ParamSpec("P")
R = TypeVar("R")
R2 = TypeVar("R2")
R3 = TypeVar("R3")

CONNECTIONS = 4
"""Connections for starts and questions of one client; commits of more at once share a flush anyway."""


class Client:
    """Starts runs in one namespace, and gives handles of any run of the database.

    async with perdure.Client() as client:
        handle = await client.start(process_order, "1001", 4200)
        receipt = await handle.result(timeout=30)

    Connects when first used; at most seven connections, fewer when idle. Use it on one event loop; many tasks may share
    it. `url`: postgresql://…, else the settings PERDURE_DATABASE_… of the environment. `namespace` and `pool`: where
    runs are started unless their options say otherwise. `listen` False: ends are found by polling alone, as behind a
    pooler in transaction mode (`PERDURE_DATABASE_POOLER=transaction`, or `?pooler=transaction` in the URL). `worker`:
    the `resident` of a worker in this process and on this event loop; runs begin in its free slots at once, and their
    ends are known without asking. `serializer` and `codecs`: how what it sends is written, beside which it reads what
    `perdure.register_serializer` and `register_codec` have named; without them it writes as the process does.

    Raises `ConfigurationError` when there is no URL or it is not Postgres', `InvalidArgument` for the names.
    """

    def __init__(
        self,
        url: str | None = None,
        namespace: str = "default",
        pool: str = "default",
        *,
        listen: bool = True,
        worker: Resident | None = None,
        serializer: Serializer | None = None,
        codecs: Sequence[Codec] = (),
    ) -> None:
        if url is None:
            address = database_url()
        else:
            address = with_pooler(checked_url(url, "the url of the client"), os.environ.get(POOLER_VARIABLE, ""))
        check_text("namespace", namespace, NAME_MAX)
        check_text("pool", pool, NAME_MAX)
        errortypes.policy()
        self.namespace = namespace
        self.pool = pool
        self.serializers = self._known().with_own(serializer, codecs)
        self._address = address
        self._database = Database(address, size=CONNECTIONS)
        self._watcher = Watcher(address, listen=listen and not pooled(address))
        self._news = News(self._database)
        self.queues = Queues(self._database, namespace)
        self.waits = Waits(self._database, address, listen=listen and not pooled(address))
        self._creator = Creator(self._database, self._news, worker, namespace, self.serializers)
        self.schedules = Schedules(self._database, self._news, namespace, pool, self.handle, self.serializers)
        self._unsubscribe = None if worker is None else worker.subscribe(self._watcher.settled, self._watcher.ended)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Waits end with `ClientClosed`; runs go on. May be called twice."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        await self._news.close()
        await self._watcher.close()
        await self.waits.close()
        await self._database.close()

    async def start(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Start a run of the workflow with these arguments; options come from `workflow.options(…)`.

        The run exists, durably, on return. With an id it is made once: the same start again gives the run that is
        there, whatever its state, unless `reuse` says otherwise. Raises `TypeError`, `EncodingFailed`,
        `InvalidArgument`, `ConflictingWorkflow` when the id is another run's, `WorkflowIdInUse`, `QueueDeduplicated`,
        `StoreUnavailable` with the id when it is not known whether the run exists; `InsideWorkflow` in the body of a
        run and `InsideStep` in a step, where `workflow.start(…)` starts a child.
        """
        return await self._start(startable(workflow).prepare(*args, **kwargs))

    async def start_in(
        self, connection: asyncpg.Connection[Any], workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]:
        """`start` in the transaction of your own asyncpg connection to the same database: the run is there when that
        commits, and never was when it rolls back.

        Workers are not told of it, they find it within their poll interval. Errors of Postgres are raised as asyncpg's
        own, and have ended the transaction, as always; there are no further attempts. Else raises as `start`.
        """
        self._outside_of_runs("Client.start_in", "workflow.start(…)")
        start = startable(workflow).prepare(*args, **kwargs)
        row = await self._row(start)
        created = await self._creator.create_in(connection, (start, row))
        return self._handle(start, created.id_of(row))

    async def run(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start a run and wait for its result: `start`, then `Handle.result`, with less to do in between.

        Put it into `asyncio.timeout` to wait for no longer than that; the run goes on then. Raises as both do, and
        `InvalidArgument` for a workflow with the option `queue`: whoever waits does not want to stand in another queue.
        """
        return await self._run(startable(workflow).prepare(*args, **kwargs))

    async def start_many(self, starts: Iterable[PreparedStart[R]]) -> list[Handle[R]]:
        """Start many runs: `client.start_many(process_order.prepare(each) for each in orders)`; handles in that order.

        In batches of up to a thousand, each one transaction. When this raises, the batches before are durable, and of
        the present one, if an id is taken, the runs whose ids were free; the rest is not started. Starting the same
        again, with ids, starts what is missing. Two starts with one id are one run. Workers take the runs in the order
        of the list. Raises as `start`.
        """
        self._outside_of_runs("Client.start_many", "asyncio.gather(*(workflow.start(…) …))")
        handles: list[Handle[R]] = []
        for batch in batches(starts):
            pairs = [(start, await self._row(start)) for start in batch]
            created = await self._creator.create(pairs, awaited=False)
            handles += [self._handle(start, created.id_of(row)) for start, row in pairs]
        return handles

    async def debounce(
        self, start: PreparedStart[R], key: str, delay: Seconds, cap: Seconds | None = None
    ) -> Handle[R]:
        """Start a run after `delay`, or postpone the one that an earlier call with this key has started, and give it
        this input instead: `client.debounce(index.prepare(document), key=document, delay=5, cap=60)`.

        As `perdure.debounce` in the body of a run. Durable on return, and done once also when an answer was lost.
        Raises `InvalidArgument`, `StoreUnavailable`, `InsideWorkflow` and `InsideStep`.
        """
        self._outside_of_runs("Client.debounce", "perdure.debounce")
        times = check_debounce(start, key, delay, cap)
        row = await self._row(start)
        asked = Debounce(row, times.key, row.id, times.delay, times.cap)
        return self._handle(start, await self._database.persist(debounce, self.namespace, asked))

    async def start_by_name(
        self,
        workflow: str,
        arguments: Sequence[Any] | Mapping[str, Any] = (),
        options: StartOptions | None = None,
    ) -> Handle[Any]:
        """Start a run of a workflow whose function this program does not have.

        `workflow` is its registered name; `arguments` are by position or by name. A name that no worker knows is no
        error: the run waits for one that does. Results are plain JSON values. What the workflow was registered with
        (timeout, attempts) is not known here: say it in the options. Raises as `start`.
        """
        check_text("workflow", workflow, ID_MAX)
        given = arguments_of(workflow, arguments)
        options = options or StartOptions()
        text = encode(given, f"the input of workflow {workflow}", input_encoding(options.choice))
        start: PreparedStart[Any] = PreparedStart(workflow, given, text, options, None)
        return await self._start(start)

    @overload
    def handle(self, run_id: str, workflow: Workflow[..., R]) -> Handle[R]: ...
    @overload
    def handle(self, run_id: str, workflow: None = None) -> Handle[Any]: ...
    def handle(self, run_id: str, workflow: Workflow[..., Any] | None = None) -> Handle[Any]:
        """The run with this id, of any namespace. Asks nothing: whether there is one, the first question says.

        With its workflow, results have the annotated type; without, they are plain JSON values. Raises
        `InvalidArgument` for what cannot be an id.
        """
        return self._handle_of(run_id_of(run_id), None if workflow is None else workflow.definition)

    async def select_workflow(
        self,
        *runs: str | Handle[Any],
        timeout: Seconds | None = None,  # noqa: ASYNC109 - it cancels nothing, which asyncio.timeout would
    ) -> str:
        """Wait until one of several runs, given by ids or handles, has ended; its id. Of those that have, the first as
        given. All share one question to the database a tick.

        Raises `InvalidArgument` for no run or one that is given twice, `NonExistentWorkflow` if one is not there,
        `WaitTimeout` (they go on), `StoreUnavailable`.
        """
        return await select(self._watcher, runs, limit_of(timeout, None))

    @overload
    async def join_workflows(self, *runs: str, timeout: Seconds | None = None) -> None: ...  # noqa: ASYNC109
    @overload
    async def join_workflows(
        self,
        first: Handle[R],
        second: Handle[R2],
        /,
        *,
        timeout: Seconds | None = None,  # noqa: ASYNC109
    ) -> tuple[R, R2]: ...
    @overload
    async def join_workflows(
        self,
        first: Handle[R],
        second: Handle[R2],
        third: Handle[R3],
        /,
        *,
        timeout: Seconds | None = None,  # noqa: ASYNC109
    ) -> tuple[R, R2, R3]: ...
    @overload
    async def join_workflows(self, *runs: Handle[R], timeout: Seconds | None = None) -> tuple[R, ...]: ...  # noqa: ASYNC109
    async def join_workflows(
        self,
        *runs: Any,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - it cancels nothing, which asyncio.timeout would
    ) -> Any:
        """Wait until all of several runs have ended. Given ids, it gives None; given handles, the tuple of their
        results, and of those that failed it raises the first in order, as `Handle.result`. Raises as `select_workflow`.
        """
        return await join(self._watcher, runs, limit_of(timeout, None))

    async def send(
        self,
        to: str,
        value: Any,
        topic: str = "",
        key: str | None = None,
        *,
        serialization: Serialization | SerializationName | None = None,
    ) -> None:
        """Send a message to the run with this id, which takes it with `perdure.recv` of the same topic.

        Durable on return; a receiver that waits goes on at once. `key`: what makes the message the same one, whoever
        sends it; a second with a key that the receiver has had is none. A run that has ended keeps it unread. `topic`
        and `key` are 1 to 255 printable characters. `serialization`: how the value is written; without it as this
        client writes. Raises `EncodingFailed`, `InvalidArgument`, `NonExistentWorkflow`, and `StoreUnavailable`, after
        which sending again is safe with a key.
        """
        message = Outgoing(value, topic, key, serialization)
        self._news.ready(await send_message(self._database, self.serializers, to, message))

    # What runs publish.
    get_event = reading.get_event
    read_stream = reading.read_stream

    # What is done with runs that are there, and what is known of them.
    cancel = management.cancel
    cancel_many = management.cancel_many
    resume = management.resume
    resume_many = management.resume_many
    fork = management.fork
    rewind = management.rewind
    delete = management.delete
    delete_many = management.delete_many
    set_delay = management.set_delay
    set_attributes = management.set_attributes
    export_history = exporting.export_history
    get_workflow = management.get_workflow
    list_workflows = management.list_workflows
    list_steps = management.list_steps

    async def _run(self, start: PreparedStart[R]) -> R:
        self._outside_of_runs("Client.run", "workflow.run(…)")
        start.options.check_run()
        row = await self._row(start)
        # Before the run exists, or the news of its end could come before anybody listens for it.
        future = self._watcher.watch(row.id, POLL_SECONDS, asleep=True)
        try:
            created = await self._creator.create([(start, row)], awaited=True)
        except BaseException as error:
            self._watcher.forget(row.id, future)
            if isinstance(error, ClientClosed):
                raise self._watcher.farewell(row.id) from error
            raise
        if (run_id := created.id_of(row)) != row.id:
            self._watcher.forget(row.id, future)
            return await self._handle(start, run_id).result()
        self._watcher.awake(row.id, armed=row.id in created.ids and not created.here, here=created.here)
        return await self._handle(start, row.id).result_of(future)

    def _known(self) -> Serializers:
        return registering.default_registry.serializers

    def _outside_of_runs(self, what: str, instead: str) -> None:
        outside_of_runs(what, instead)

    async def _start(self, start: PreparedStart[R]) -> Handle[R]:
        self._outside_of_runs("Client.start", "workflow.start(…)")
        row = await self._row(start)
        created = await self._creator.create([(start, row)], awaited=False)
        return self._handle(start, created.id_of(row))

    def _handle(self, start: PreparedStart[R], run_id: str) -> Handle[R]:
        return self._handle_of(run_id, start.definition)

    def _handle_of(self, run_id: str, definition: WorkflowDefinition | None) -> Handle[Any]:
        return Handle(run_id, definition, database=self._database, watcher=self._watcher, serializers=self.serializers)

    async def _row(self, start: PreparedStart[Any]) -> RunStart:
        return await stored_row_of(start, self.pool, self.serializers)
