"""The limits of queues, said and read by programs: `client.queues`.

A queue is a name. Only one that has limits has a row, which claims of the workers keep from their next one on; so
nothing here need be told to workers. Every change is durable on return.
"""

from __future__ import annotations

import builtins

from perdure.client.database import Database
from perdure.engine.context import outside_of_bodies
from perdure.errors import InvalidArgument, NonExistentQueue
from perdure.model.queues import Queue, QueueLimits, RateLimit, check_queue
from perdure.store import queues as store


class Queues:
    """The queues of the client's namespace. All pools of the namespace that serve a queue share its limits.

    A limit that is not given is none. Every call raises `InvalidArgument` for what cannot be a name or a limit,
    `StoreUnavailable`, and `InsideWorkflow` in the body of a run, which would not record it.
    """

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def apply(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        worker_concurrency: int | None = None,
        partition_concurrency: int | None = None,
        rate: RateLimit | None = None,
        paused: bool | None = None,
    ) -> Queue:
        """Say all limits of the queue, whether or not it had some; the same again changes nothing.

        `concurrency`: runs at once, in all. `worker_concurrency`: of one worker. `partition_concurrency`: of one
        partition. `rate`: how many may begin in a time. `paused`: None leaves it as it is. Runs that run already go
        on, and count. A changed rate goes on with what the old one had left to begin. Raises `InvalidArgument` also
        when a resource manages the queue.
        """
        limits = self._limits(name, "apply", concurrency, worker_concurrency, partition_concurrency, rate)
        _check_paused(paused)
        queue = await self._database.persist(store.apply, self._namespace, name, limits, paused)
        if queue is None:
            raise await self._refused(name)
        return queue

    async def create(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        worker_concurrency: int | None = None,
        partition_concurrency: int | None = None,
        rate: RateLimit | None = None,
        paused: bool = False,
    ) -> Queue:
        """As `apply`, for a queue without limits: raises `InvalidArgument` when it has some, and says nothing then.

        After a `StoreUnavailable` it is not known whether they are said; `get` tells.
        """
        limits = self._limits(name, "create", concurrency, worker_concurrency, partition_concurrency, rate)
        _check_paused(paused)
        queue = await self._database.call(store.create, self._namespace, name, limits, paused)
        if queue is None:
            raise InvalidArgument(f"queue {name} has limits already: change them with queues.apply")
        return queue

    async def get(self, name: str) -> Queue:
        """The queue of this name. Raises `NonExistentQueue` when it has no limits."""
        self._check(name, "get")
        found = await self._database.persist(store.listed, self._namespace, name)
        if not found:
            raise self._unknown(name)
        return found[0]

    async def list(self) -> builtins.list[Queue]:
        """All queues that have limits, by name. A queue without any is in no list: it is only used.

        Raises `StoreUnavailable`, `InsideWorkflow` in the body of a run.
        """
        outside_of_bodies("Client.queues.list")
        return await self._database.persist(store.listed, self._namespace)

    async def pause(self, name: str) -> Queue:
        """Let nothing more of the queue be taken. Once this has returned no worker takes a run of it; those that run go
        on, and those that wait for something stay parked. Raises `NonExistentQueue`."""
        return await self._pause(name, "pause", paused=True)

    async def resume(self, name: str) -> Queue:
        """Let its runs be taken again, within a poll interval of the workers. Raises `NonExistentQueue`."""
        return await self._pause(name, "resume", paused=False)

    async def delete(self, name: str) -> None:
        """Take its limits off, a pause too. Its runs stay, and workers take them as they have slots. Raises
        `NonExistentQueue`; after a `StoreUnavailable` it is not known whether they are off."""
        self._check(name, "delete")
        if not await self._database.call(store.delete, self._namespace, name):
            raise await self._refused(name)

    async def _pause(self, name: str, verb: str, *, paused: bool) -> Queue:
        self._check(name, verb)
        queue = await self._database.persist(store.pause, self._namespace, name, paused)
        if queue is None:
            raise await self._refused(name)
        return queue

    def _limits(
        self,
        name: str,
        verb: str,
        concurrency: int | None,
        worker_concurrency: int | None,
        partition_concurrency: int | None,
        rate: RateLimit | None,
    ) -> QueueLimits:
        self._check(name, verb)
        return QueueLimits(concurrency, worker_concurrency, partition_concurrency, rate)

    def _check(self, name: str, verb: str) -> None:
        outside_of_bodies(f"Client.queues.{verb}")
        check_queue(name)

    async def _refused(self, name: str) -> InvalidArgument | NonExistentQueue:
        """Why nothing was changed."""
        found = await self._database.persist(store.listed, self._namespace, name)
        if found and found[0].managed_by:
            return InvalidArgument(f"queue {name} is managed by {found[0].managed_by}: change it there")
        return self._unknown(name)

    def _unknown(self, name: str) -> NonExistentQueue:
        return NonExistentQueue(
            f"queue {name} of namespace {self._namespace} has no limits: it is used by its name alone; "
            "queues.apply gives it some"
        )


def _check_paused(paused: object) -> None:
    if paused is not None and not isinstance(paused, bool):
        raise InvalidArgument(f"paused is True or False, not {paused!r}")
