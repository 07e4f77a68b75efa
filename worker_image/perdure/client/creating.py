"""Creates the runs that a client starts, and finds out which run is meant where one is there already.

Used by the client. Promises: what has been created is durable on return, and a start whose answer was lost may be made
again; a start that asks whether it is the first finds its own run then, not another's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg

from perdure.client.database import Database
from perdure.client.news import News
from perdure.client.resident import Resident
from perdure.client.starts import Pair, distinct, instead, refuse_other
from perdure.engine.serialization import Serializers
from perdure.errors import NonExistentWorkflow, StoreUnavailable
from perdure.model.start import ReusePolicy
from perdure.store import clients as store
from perdure.store.clients import RunStart

COMPARED = 100
"""Runs that are compared with what is there in one statement: their inputs are read, each up to a megabyte."""

AGAIN = 10
"""How often a start is made that finds neither its run nor what was in its way: each time something has just gone."""


@dataclass(slots=True)
class Created:
    """What became of starts. `ids`: of runs that this call is known to have created. `here`: this process runs them.
    `instead`: for an id, that of the run which is given for it."""

    ids: set[str] = field(default_factory=set)
    here: bool = False
    instead: dict[str, str] = field(default_factory=dict)

    def id_of(self, row: RunStart) -> str:
        """The run of this start."""
        return self.instead.get(row.id, row.id)


Ask = Callable[..., Awaitable[Any]]
"""How the database is asked, given an operation and its arguments: with further attempts, or once on a connection."""


class Creator:
    """See the module; one for each client."""

    def __init__(
        self, database: Database, news: News, worker: Resident | None, namespace: str, serializers: Serializers
    ) -> None:
        self._database = database
        self._news = news
        self._worker = worker
        self._namespace = namespace
        self._serializers = serializers

    async def create(self, pairs: Sequence[Pair], *, awaited: bool) -> Created:
        """Create the runs, durably. Raises `ConflictingWorkflow`, `WorkflowIdInUse`, `QueueDeduplicated`, and
        `StoreUnavailable` with the ids when it is not known whether they exist."""
        wanted = distinct(pairs)
        rows = [row for _, row in wanted.values()]
        try:
            if len(rows) == 1 and await self._create_here(rows[0]):
                return Created({rows[0].id}, here=True)
            created = await self._create(self._database.persist, wanted, awaited=awaited)
            # Also when none is said to be created: that may be because a first answer was lost.
            self._news.ready((self._namespace, row.pool) for row in rows if row.delay is None)
        except StoreUnavailable as error:
            ids = tuple(wanted)
            which = f"run {ids[0]} exists" if len(ids) == 1 else f"{len(ids)} runs exist"
            raise StoreUnavailable(
                f"whether {which} is not known; starting again with the same id is safe: {error.message}", ids
            ) from error
        return created

    async def create_in(self, connection: asyncpg.Connection[Any], pair: Pair) -> Created:
        """Create the run in the transaction of a connection: it is there when that commits. Raises as `create`, and
        what Postgres says as it says it, since the transaction is the caller's."""

        async def ask(operation: Callable[..., Awaitable[Any]], /, *args: Any, **kwargs: Any) -> Any:
            return await operation(connection, *args, **kwargs)

        return await self._create(ask, {pair[1].id: pair}, awaited=False)

    async def _create(self, ask: Ask, wanted: dict[str, Pair], *, awaited: bool) -> Created:
        found = Created()
        left = wanted
        for _ in range(AGAIN):
            rows = [row for _, row in left.values()]
            found.ids |= await ask(store.start, self._namespace, rows, awaited=awaited)
            taken = [pair for run_id, pair in left.items() if run_id not in found.ids]
            gone: dict[str, Pair] = {}
            for begin in range(0, len(taken), COMPARED):
                gone |= await self._compare(ask, taken[begin : begin + COMPARED], found)
            if not gone:
                return found
            left = gone
        raise NonExistentWorkflow(
            f"run {next(iter(left))} was there and was removed while it was started, again and again"
        )

    async def _create_here(self, row: RunStart) -> bool:
        """Whether the run was created and begins in this process. Never when it is not known: it may exist then."""
        slot = None if self._worker is None else self._worker.reserve(self._namespace, row)
        if slot is None:
            return False
        try:
            run = await self._database.call(store.start_here, slot.worker_id, slot.version, self._namespace, row)
        except StoreUnavailable:
            slot.failed()
            return False
        except BaseException:
            slot.failed()
            raise
        slot.answered(run)
        return run is not None

    async def _compare(self, ask: Ask, pairs: Sequence[Pair], found: Created) -> dict[str, Pair]:
        """See to the starts whose runs were not created; those for which there is nothing any more.

        Raises unless the runs that have their ids may be given for them.
        """
        there = await ask(store.existing, [row.id for _, row in pairs])
        free: dict[str, Pair] = {}
        for start, row in pairs:
            if row.id not in there:
                free[row.id] = (start, row)
                continue
            text = await self._serializers.fetch(there[row.id].input, f"the input of run {row.id}")
            refuse_other(start, row, replace(there[row.id], input=text), self._namespace)
            if start.options.reuse == ReusePolicy.RERUN_FAILED and there[row.id].failed:
                assert row.token is not None
                await ask(store.rerun, row.id, row.token)
        return await self._given_instead(ask, free, found) if free else free

    async def _given_instead(self, ask: Ask, free: dict[str, Pair], found: Created) -> dict[str, Pair]:
        """Of starts whose ids are free: those that no deduplication id holds up, either."""
        held = [pair for pair in free.values() if pair[1].deduplication_id is not None]
        keys = [(row.queue, str(row.deduplication_id)) for _, row in held]
        holders = await ask(store.holders, self._namespace, keys) if held else {}
        for (start, row), key in zip(held, keys, strict=True):
            if key in holders:
                found.instead[row.id] = instead(start, row, holders[key])
                del free[row.id]
        return free
