"""Waits of a client for the first of several runs to end, or for all. Used by the client.

Every one of them is a wait of the watcher, so that however many there are they share its one question a tick; nothing
is left of those that are not waited for any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from perdure.client.handle import POLL_SECONDS, Handle
from perdure.client.watcher import Watcher
from perdure.engine.calls.arguments import run_ids_of
from perdure.errors import InvalidArgument, WaitTimeout
from perdure.store.clients import RunSight


async def select(watcher: Watcher, runs: Sequence[str | Handle[Any]], limit: float | None) -> str:
    """The id of the first run that has ended; of those that have, the first as they are given.

    Raises `InvalidArgument`, `NonExistentWorkflow` if one of them is not there, `WaitTimeout` after `limit` seconds.
    """
    ids = run_ids_of([_id_of(run) for run in runs])
    with _watched(watcher, ids) as futures:
        await asyncio.wait(futures, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        ended = [run_id for run_id, future in zip(ids, futures, strict=True) if _over(future)]
        if not ended:
            raise _late(watcher, f"none of {len(ids)} runs has ended", limit)
        return ended[0]


async def join(watcher: Watcher, runs: Sequence[str | Handle[Any]], limit: float | None) -> Any:
    """Wait until all have ended. For handles the tuple of their results, for ids None.

    Raises as `select`, and for handles the first failure in their order.
    """
    handles = [run for run in runs if isinstance(run, Handle)]
    if 0 < len(handles) < len(runs):
        raise InvalidArgument("join_workflows takes ids or handles, not both")
    ids = run_ids_of([_id_of(run) for run in runs])
    with _watched(watcher, ids) as futures:
        await asyncio.wait(futures, timeout=limit, return_when=asyncio.FIRST_EXCEPTION)
        left = sum(not _over(future) for future in futures)
        if left:
            raise _late(watcher, f"{left} of {len(ids)} runs have not ended", limit)
        sights = [future.result() for future in futures]
    if not handles:
        return None
    return tuple([await handle.value_of(sight) for handle, sight in zip(handles, sights, strict=True)])


@contextmanager
def _watched(watcher: Watcher, ids: Sequence[str]) -> Iterator[list[asyncio.Future[RunSight]]]:
    futures = [watcher.watch(run_id, POLL_SECONDS) for run_id in ids]
    try:
        yield futures
    finally:
        for run_id, future in zip(ids, futures, strict=True):
            watcher.forget(run_id, future)


def _over(future: asyncio.Future[RunSight]) -> bool:
    """Whether the run has ended. Raises what there is to say instead."""
    if not future.done():
        return False
    future.result()
    return True


def _late(watcher: Watcher, what: str, limit: float | None) -> WaitTimeout:
    trouble = f" (the database does not answer: {watcher.trouble})" if watcher.trouble else ""
    return WaitTimeout(f"{what} within {limit:g} s; they go on{trouble}")


def _id_of(run: Any) -> str:
    if isinstance(run, Handle):
        return run.id
    if isinstance(run, str):
        return run
    raise InvalidArgument(f"a run is given by its id or the handle of a client, not as {run!r}")
