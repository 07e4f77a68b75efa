"""A run as code outside of it holds it: wait, ask, cancel. Made by the client, which it needs to stay open."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from perdure.client import managed
from perdure.client.outcome import Expected
from perdure.engine.encoding import MARK, MAX_PAYLOAD_BYTES
from perdure.engine.sealing import SEALED, opened
from perdure.errors import InvalidArgument, WaitTimeout
from perdure.model.outcome import ErrorRecord
from perdure.model.start import Seconds, positive_seconds
from perdure.model.states import RunStatus
from perdure.store import clients as store
from perdure.store.clients import RunSight

if TYPE_CHECKING:
    from perdure.client.database import Database
    from perdure.client.watcher import Watcher
    from perdure.engine.registry import WorkflowDefinition
    from perdure.engine.serialization import Serializers

R = TypeVar("R")

POLL_SECONDS = 1.0
"""How often a wait asks when no notification comes: what a lost one costs at most."""

POLL_LEAST, POLL_MOST = 0.02, 60.0
"""Range of a wait's poll interval: below, one client would keep a database busy; above, an end is as good as missed."""

ANY_SIZE = 2**31 - 1
"""More bytes than an outcome can have: error and output together are a little over `MAX_PAYLOAD_BYTES`."""

assert ANY_SIZE > 2 * MAX_PAYLOAD_BYTES


class Handle(Generic[R]):
    """One run, with the type of its result. Equal handles are of the same run.

    Waits cancel nothing and may be abandoned at any time. All raise `StoreUnavailable` when the database cannot be
    asked, and `ClientClosed` after the client was closed.
    """

    def __init__(
        self,
        run_id: str,
        workflow: WorkflowDefinition | None,
        *,
        database: Database,
        watcher: Watcher,
        serializers: Serializers,
    ) -> None:
        self.id = run_id
        """The run's id; `Client.handle` makes another handle from it."""
        self._expected = Expected(run_id, workflow)
        self._database = database
        self._watcher = watcher
        self._serializers = serializers

    def of(self, run_id: str) -> Handle[R]:
        """The handle of another run of the same workflow."""
        return Handle(
            run_id,
            self._expected.workflow,
            database=self._database,
            watcher=self._watcher,
            serializers=self._serializers,
        )

    @property
    def workflow_id(self) -> str:
        """The id of the run: another name of `id`."""
        return self.id

    async def wait(
        self,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - it cancels nothing, which asyncio.timeout would
        *,
        poll: Seconds = POLL_SECONDS,
        deadline: datetime | None = None,
    ) -> RunStatus:
        """Wait until the run has ended, however it did; its final status.

        `timeout`: seconds or timedelta. `deadline`: an instant with a time zone, by this machine's clock. Both limits
        hold even when the database hangs. `poll`: how often to ask when no notification comes, 0.02 to 60 seconds.
        Without a limit the wait goes on over outages of the database for as long as it takes.

        Raises `WaitTimeout` (the run goes on), `NonExistentWorkflow` (also when it is deleted meanwhile).
        """
        return (await self._ended(limit_of(timeout, deadline), poll)).status

    async def wait_with_timeout(self, seconds: Seconds) -> RunStatus:
        """`wait` for at most so long. Raises as `wait`."""
        return await self.wait(seconds)

    async def result(
        self,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - it cancels nothing, which asyncio.timeout would
        *,
        poll: Seconds = POLL_SECONDS,
        deadline: datetime | None = None,
    ) -> R:
        """`wait`, then what the workflow returned.

        Raises what the workflow raised, as its own class where it can be found and built here, else `WorkflowFailed`;
        `WorkflowCancelled`; `MaxRecoveryAttemptsExceeded`; `DecodingFailed` when the result does not fit the
        workflow's annotation; `UnknownSerialization` when it was written by a serializer that the client does not have;
        `ConflictingWorkflow` when the run is of another workflow; and what `wait` raises.
        """
        return await self._value(await self._ended(limit_of(timeout, deadline), poll))

    async def result_of(self, future: asyncio.Future[RunSight]) -> R:
        """`result`, from a wait that has begun already. For the client."""
        return await self._value(await self._limited(future, None))

    async def value_of(self, sight: RunSight) -> R:
        """`result` of the run that was seen to have ended like this. For the client."""
        return await self._value(sight)

    async def status(self) -> RunStatus:
        """How the run stands now. Raises `NonExistentWorkflow`."""
        return (await self._sight(with_outcome=False)).status

    async def output(self) -> R:
        """What the workflow of an ended run returned; None is a value.

        Raises as `result`, and `WorkflowNotFinished`.
        """
        return await self._value(await self._sight())

    async def output_raw(self) -> str | None:
        """The result as JSON text; None if the run has none: it has not ended, or not well.

        Raises `NonExistentWorkflow`, `UnknownSerialization`.
        """
        return (await self._readable(await self._sight())).output

    # What is done with the run, and what is known of it.
    cancel = managed.cancel
    resume = managed.resume
    fork = managed.fork
    rewind = managed.rewind
    delete = managed.delete
    set_delay = managed.set_delay
    set_attributes = managed.set_attributes
    send = managed.send
    details = managed.details
    steps = managed.steps

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<handle of run {self.id}>"

    async def _value(self, sight: RunSight) -> R:
        found: R = self._expected.value(await self._readable(sight if sight.complete else await self._sight()))
        return found

    async def _readable(self, sight: RunSight) -> RunSight:
        """With its result as JSON, and its error opened. Raises `UnknownSerialization`, `DecodingFailed`."""
        if sight.error is not None and SEALED in sight.error:
            error = await asyncio.to_thread(opened, ErrorRecord.from_json(sight.error), self._serializers)
            sight = replace(sight, error=error.to_json())
        if sight.output is None or sight.output[:1] != MARK:
            return sight
        text = await self._serializers.fetch(sight.output, f"the result of run {self.id}")
        return replace(sight, output=text)

    async def _ended(self, limit: float | None, poll: Seconds) -> RunSight:
        every = positive_seconds("poll", poll)
        future = self._watcher.watch(self.id, min(max(every, POLL_LEAST), POLL_MOST))
        return await self._limited(future, limit)

    async def _limited(self, future: asyncio.Future[RunSight], limit: float | None) -> RunSight:
        """How the run ended. Between a caller and its limit, in seconds, stands nothing but this `timeout`."""
        try:
            async with asyncio.timeout(limit):
                return await future
        except TimeoutError:
            if future.done() and not future.cancelled():
                return future.result()  # the end came in the turn of the loop in which the limit did
            trouble = self._watcher.trouble
            raise WaitTimeout(
                f"run {self.id} has not ended within {limit:g} s; it goes on"
                + (f" (the database does not answer: {trouble})" if trouble else "")
            ) from None
        finally:
            self._watcher.forget(self.id, future)

    async def _sight(self, *, with_outcome: bool = True) -> RunSight:
        most = ANY_SIZE if with_outcome else 0
        seen = await self._database.persist(store.watch, [self.id], [], most_bytes=most)
        if self.id not in seen:
            raise self._expected.nonexistent()
        return seen[self.id]


def limit_of(timeout: Seconds | None, deadline: datetime | None) -> float | None:
    """Seconds that a wait may take, None for no limit; the earlier of both counts. Raises `InvalidArgument`."""
    limits = [] if timeout is None else [positive_seconds("timeout", timeout)]
    if deadline is not None:
        if deadline.tzinfo is None:
            raise InvalidArgument("deadline has no time zone: use datetime.now(UTC) + …")
        limits.append(max(0.0, (deadline - datetime.now(UTC)).total_seconds()))
    return min(limits, default=None)
