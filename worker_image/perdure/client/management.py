"""What a client does with runs that are there, and what it knows of them: the methods of `Client` and `Handle` for it.

Functions, which both classes take as their methods. `store.management` says what each does to the rows; here the run is
told of that matters to: workers that may take it, a parent that waits, waits of this client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, overload

from perdure.client.database import Database
from perdure.client.watcher import Watcher
from perdure.engine.calls.arguments import run_id_of
from perdure.errors import NonExistentWorkflow, StoreUnavailable
from perdure.model.listing import (
    OneRun,
    RunDetails,
    RunFilters,
    RunPage,
    RunQuery,
    StepDetails,
    StepQuery,
    filter_of,
)
from perdure.model.management import (
    Cancel,
    Cut,
    Delay,
    Delete,
    Managed,
    Resume,
    Rewind,
    Verb,
    attributes_of,
    cut_of,
    fork_of,
    ids_of,
)
from perdure.model.start import Seconds, positive_seconds
from perdure.model.states import CancelMode, RunStatus
from perdure.store import listing
from perdure.store import management as store
from perdure.store.listen import notify_cancelled, notify_ready
from perdure.store.wakes import Child, announce, announce_ends

if TYPE_CHECKING:
    from typing import Unpack

    from perdure.api.workflows import Workflow
    from perdure.client.client import Client
    from perdure.client.handle import Handle

R = TypeVar("R")

REASON = "a client cancelled it"
"""What a run says that was cancelled without a reason."""


async def carry_out(database: Database, watcher: Watcher, ids: Sequence[str], verb: Verb) -> list[Managed]:
    """Do this with all of the runs or with none, durably, and tell whom it concerns. Raises as `store.manage`."""
    # What begins anew each time is not made again when an answer is lost: nobody would know how often it was done.
    do = database.call if isinstance(verb, Rewind) else database.persist
    managed = await do(store.manage, ids, verb)
    for each in managed:
        if each.ended:
            watcher.ended(each.id)
    try:
        pools = {(each.namespace, each.pool) for each in managed if each.ready}
        children = [Child(each.id, each.parent_id) for each in managed if each.ended and each.parent_id is not None]
        woken = await database.call(announce, [], children) if children else []
        if ended := [each.id for each in managed if each.ended]:
            woken += await database.call(announce_ends, ended)
        pools |= {(each.namespace, each.pool) for each in woken if each.ready}
        await tell_ready(database, pools)
        if isinstance(verb, Cancel | Delete) and (running := [each.id for each in managed if not each.status.finished]):
            await database.call(notify_cancelled, running)
    except StoreUnavailable:
        # It is done; the sweeps of the workers wake whoever waits.
        pass
    return managed


async def tell_ready(database: Database, pools: Iterable[tuple[str, str]]) -> None:
    """Runs of these pools became claimable: their workers need not find out. Raises nothing of the database's."""
    with suppress(StoreUnavailable):
        for namespace, pool in sorted(pools):
            await database.call(notify_ready, namespace, pool)


# -- what is known of runs


async def list_workflows(
    self: Client,
    *,
    limit: int = 100,
    after: str | None = None,
    newest_first: bool = True,
    payloads: bool = False,
    **filters: Unpack[RunFilters],
) -> RunPage:
    """A page of the runs of this client's namespace in the order of their creation: at most `limit`, which is up to
    1000.

    `after`: `next` of the page before. `payloads`: with inputs, results and errors, and at most 100. `filters`: `ids`,
    `id_prefix`, `workflow`, `status`, `queue`, `pool`, `version`, `parent_id`, `forked_from`, `partition_key`,
    `attributes`, `created_from`, `created_until`, `finished_from`, `finished_until`, as in `RunFilters`. A run is on
    one page once, whatever is started or removed between two. A filter that few of very many runs pass is read in
    portions and takes as long as that. Raises `InvalidArgument`, `StoreUnavailable`.
    """
    query = RunQuery(self.namespace, filter_of(filters), limit, after, newest_first, payloads)
    return await self._database.persist(listing.page, query)


async def get_workflow(self: Client, run_id: str, *, payloads: bool = True) -> RunDetails:
    """Everything that is known of a run, of any namespace, as it stands now. Raises `NonExistentWorkflow`."""
    return await details_of(self._database, run_id_of(run_id), payloads)


async def list_steps(
    self: Client, run_id: str, *, after: int = -1, limit: int = 100, payloads: bool = True
) -> tuple[StepDetails, ...]:
    """The recorded steps of a run by their index, of which those behind `after`; at most 100, or 1000 without payloads.

    Fewer than `limit`: there are no more. Raises `NonExistentWorkflow`, `InvalidArgument`, `StoreUnavailable`.
    """
    return await steps_of(self._database, StepQuery(run_id_of(run_id), after, limit, payloads))


# -- what is done with them


async def cancel(
    self: Client, run_id: str, reason: str = REASON, *, mode: CancelMode = CancelMode.GRACEFUL, cascade: bool = True
) -> RunStatus:
    """Ask for the end of a run: `Handle.cancel`. Raises `NonExistentWorkflow`."""
    [done] = await carry_out(self._database, self._watcher, [run_id_of(run_id)], Cancel(reason, mode, cascade))
    return done.status


async def cancel_many(
    self: Client,
    run_ids: Iterable[str],
    reason: str = REASON,
    *,
    mode: CancelMode = CancelMode.GRACEFUL,
    cascade: bool = True,
) -> dict[str, RunStatus]:
    """`cancel` of up to ten thousand runs in one transaction: all of them, or none. Their statuses afterwards.

    Raises `NonExistentWorkflow` for the first that is not there, `InvalidArgument`, `StoreUnavailable`.
    """
    done = await carry_out(self._database, self._watcher, ids_of(run_ids), Cancel(reason, mode, cascade))
    return {each.id: each.status for each in done}


@overload
async def resume(self: Client, run_id: str, workflow: Workflow[..., R]) -> Handle[R]: ...
@overload
async def resume(self: Client, run_id: str, workflow: None = None) -> Handle[Any]: ...
async def resume(self: Client, run_id: str, workflow: Workflow[..., Any] | None = None) -> Handle[Any]:
    """Take a run up again where it stands: one that has failed, was cancelled, or was parked after too many recoveries,
    and also one that waits for its next attempt.

    Its recorded steps stay; those whose failure ended it are done again, with all their attempts. Attempts, deadline
    and deduplication id of the run are cleared, a timeout is counted anew. Nothing happens to one that has succeeded or
    goes on by itself. One that has begun to undo its steps goes on with that, and tries again what failed of it. From
    an execution that has not ended yet it is taken away: that one writes no more. Durable on return. Raises
    `NonExistentWorkflow`, `StoreUnavailable`.
    """
    await carry_out(self._database, self._watcher, [run_id_of(run_id)], Resume())
    return self.handle(run_id, workflow)


async def resume_many(self: Client, run_ids: Iterable[str]) -> list[Handle[Any]]:
    """`resume` of up to ten thousand runs in one transaction: all of them, or none. Raises as `cancel_many`."""
    ids = ids_of(run_ids)
    await carry_out(self._database, self._watcher, ids, Resume())
    return [self.handle(each) for each in ids]


@overload
async def fork(
    self: Client,
    run_id: str,
    at: Cut | int | str = ...,
    workflow: None = None,
    *,
    id: str | None = None,
    children: Mapping[str, str] | None = None,
) -> Handle[Any]: ...
@overload
async def fork(
    self: Client,
    run_id: str,
    at: Cut | int | str,
    workflow: Workflow[..., R],
    *,
    id: str | None = None,
    children: Mapping[str, str] | None = None,
) -> Handle[R]: ...
@overload
async def fork(
    self: Client,
    run_id: str,
    *,
    workflow: Workflow[..., R],
    id: str | None = None,
    children: Mapping[str, str] | None = None,
) -> Handle[R]: ...
async def fork(
    self: Client,
    run_id: str,
    at: Cut | int | str = Cut.BEGINNING,
    workflow: Workflow[..., Any] | None = None,
    *,
    id: str | None = None,
    children: Mapping[str, str] | None = None,
) -> Handle[Any]:
    """Start a new run that begins with the steps which this one has recorded before a cut, and goes on from there.

    `at`: where to cut, a `Cut`, the index of a step or its name. The other run, ended or not, is left as it is. The new
    one has its input, workflow, namespace, pool, queue, priority, partition, timeout and attributes, its events and
    stream values as they were at the cut, no deduplication id, and no version: any worker may take it. `id`: that of
    the new run; the same fork made again gives the run that is there. `children`: ids of kept child runs, each with
    that of the run which stands for it in the fork. It undoes only what it does itself. Durable on return. Raises
    `NonExistentWorkflow`, `InvalidArgument` where there is no such step or child, and for a cut that would keep steps
    which were undone; `ConflictingWorkflow` when the id is another run's, `StoreUnavailable`.
    """
    [made] = await carry_out(self._database, self._watcher, [run_id_of(run_id)], fork_of(id, at, children))
    return self.handle(made.id, workflow)


@overload
async def rewind(self: Client, run_id: str, to: Cut | int | str, workflow: Workflow[..., R]) -> Handle[R]: ...
@overload
async def rewind(self: Client, run_id: str, to: Cut | int | str, workflow: None = None) -> Handle[Any]: ...
async def rewind(
    self: Client, run_id: str, to: Cut | int | str, workflow: Workflow[..., Any] | None = None
) -> Handle[Any]:
    """Undo the steps of a run that has ended from a cut on, and let it go on from there under its id.

    `to`: where to cut, as in `fork`. Messages that those steps received are in the inbox again, events and streams are
    as before them, children that they started and that go on are cancelled. What the steps did elsewhere stays done.
    Done again they start children with new ids and have new idempotency keys. Durable on return; not repeated when an
    answer is lost. Raises `WorkflowNotRewindable` while it has not ended, and for a cut that would keep steps that were
    undone; `NonExistentWorkflow`, `InvalidArgument` where there is no such step, `StoreUnavailable`.
    """
    await carry_out(self._database, self._watcher, [run_id_of(run_id)], Rewind(cut_of(to)))
    return self.handle(run_id, workflow)


async def delete(self: Client, run_id: str) -> None:
    """Remove a run, with all that it has recorded; one that goes on is cancelled at once, with what it has started.

    From return on it is not there: waits for it end with `NonExistentWorkflow`. Workers remove its rows soon after,
    when it and its children have ended; until then its id is in use. Raises `NonExistentWorkflow`, `InvalidArgument`
    for a run that belongs to a resource, `StoreUnavailable`.
    """
    await carry_out(self._database, self._watcher, [run_id_of(run_id)], Delete())


async def delete_many(self: Client, run_ids: Iterable[str]) -> None:
    """`delete` of up to ten thousand runs in one transaction: all of them, or none. Raises as `cancel_many`."""
    await carry_out(self._database, self._watcher, ids_of(run_ids), Delete())


async def set_delay(self: Client, run_id: str, delay: Seconds) -> None:
    """Let a run that has not begun, or waits for its next attempt, begin so long from now, by the database's clock.

    Raises `InvalidArgument` for a run that is past that, and for no length of time; `NonExistentWorkflow`,
    `StoreUnavailable`.
    """
    seconds = positive_seconds("delay", delay)
    await carry_out(self._database, self._watcher, [run_id_of(run_id)], Delay(seconds))


async def set_attributes(self: Client, run_id: str, attributes: Mapping[str, Any]) -> None:
    """Set attributes of a run, ended or not; those that are not named stay, and None removes one.

    Raises `InvalidArgument` for what cannot be one, or too many; `NonExistentWorkflow`, `StoreUnavailable`.
    """
    await carry_out(self._database, self._watcher, [run_id_of(run_id)], attributes_of(attributes))


async def details_of(database: Database, run_id: str, payloads: bool) -> RunDetails:
    """What is known of a run. Raises `NonExistentWorkflow`."""
    found = await database.persist(listing.one, OneRun(run_id, payloads))
    if found is None:
        raise NonExistentWorkflow(f"there is no run {run_id}")
    return found


async def steps_of(database: Database, query: StepQuery) -> tuple[StepDetails, ...]:
    """Its recorded steps. Raises `NonExistentWorkflow`."""
    found = await database.persist(listing.steps, query)
    if found is None:
        raise NonExistentWorkflow(f"there is no run {query.run_id}")
    return found
