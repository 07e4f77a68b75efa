"""Several durable calls at once: all of them, or the first of them. Exported again by `perdure`.

Both take calls that are built already, so that each has its place in the run whatever becomes of the others; that is
what makes them deterministic where `asyncio.gather`, `asyncio.wait_for` and their like are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Literal, TypeVar, overload

from perdure.engine.calls.alone import AloneCall
from perdure.engine.pending import PendingCall
from perdure.engine.select import Selected, build_select
from perdure.errors import ControlSignal, InvalidArgument, PatchNondeterminism, SelectMisused

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")


@overload
def gather(a: PendingCall[T1], /) -> Coroutine[Any, Any, tuple[T1]]: ...
@overload
def gather(a: PendingCall[T1], b: PendingCall[T2], /) -> Coroutine[Any, Any, tuple[T1, T2]]: ...
@overload
def gather(a: PendingCall[T1], b: PendingCall[T2], c: PendingCall[T3], /) -> Coroutine[Any, Any, tuple[T1, T2, T3]]: ...
@overload
def gather(
    a: PendingCall[T1], b: PendingCall[T2], c: PendingCall[T3], d: PendingCall[T4], /
) -> Coroutine[Any, Any, tuple[T1, T2, T3, T4]]: ...
@overload
def gather(
    a: PendingCall[T1], b: PendingCall[T2], c: PendingCall[T3], d: PendingCall[T4], e: PendingCall[T5], /
) -> Coroutine[Any, Any, tuple[T1, T2, T3, T4, T5]]: ...
@overload
def gather(
    a: PendingCall[T1],
    b: PendingCall[T2],
    c: PendingCall[T3],
    d: PendingCall[T4],
    e: PendingCall[T5],
    f: PendingCall[T6],
    /,
) -> Coroutine[Any, Any, tuple[T1, T2, T3, T4, T5, T6]]: ...
@overload
def gather(*calls: PendingCall[T], return_exceptions: Literal[False] = False) -> Coroutine[Any, Any, tuple[T, ...]]: ...
@overload
def gather(
    *calls: PendingCall[T], return_exceptions: Literal[True]
) -> Coroutine[Any, Any, tuple[T | Exception, ...]]: ...
def gather(*calls: PendingCall[Any], return_exceptions: bool = False) -> Coroutine[Any, Any, tuple[Any, ...]]:
    """Run durable calls side by side and wait for all of them; their results, in the order of the calls.

    When calls fail, the first failure in that order is raised once all have ended, whichever failed first in time: so
    the body sees the same at a replay. With `return_exceptions` failures stand among the results instead. Signals that
    end the body are never among them. Everything is recorded by the calls themselves. Raises `InvalidArgument` at once
    for what is no durable call: a coroutine would take the indexes of its calls in the order in which they begin; and
    `PatchNondeterminism` for a `patch`, `deprecate_patch` or `debounce` beside others.
    """
    for call in calls:
        if not isinstance(call, PendingCall):
            raise InvalidArgument(
                f"perdure.gather takes durable calls, not {type(call).__name__}: call the steps where you gather them"
            )
        if isinstance(call, AloneCall) and len(calls) > 1:
            raise PatchNondeterminism(
                f"{call.name} takes its place when it is awaited: await it on its own, not in gather"
            )
    return _all(calls, return_exceptions)


async def _all(calls: Sequence[PendingCall[Any]], return_exceptions: bool) -> tuple[Any, ...]:
    found = await asyncio.gather(*calls, return_exceptions=True)
    failures = [each for each in found if isinstance(each, BaseException)]
    for failure in failures:
        if isinstance(failure, ControlSignal) or not isinstance(failure, Exception):
            raise failure
    if failures and not return_exceptions:
        raise failures[0]
    return tuple(found)


@overload
def select(a: PendingCall[T1], b: PendingCall[T2], /) -> PendingCall[Selected[T1 | T2]]: ...
@overload
def select(a: PendingCall[T1], b: PendingCall[T2], c: PendingCall[T3], /) -> PendingCall[Selected[T1 | T2 | T3]]: ...
@overload
def select(
    a: PendingCall[T1], b: PendingCall[T2], c: PendingCall[T3], d: PendingCall[T4], /
) -> PendingCall[Selected[T1 | T2 | T3 | T4]]: ...
@overload
def select(*calls: PendingCall[T]) -> PendingCall[Selected[T]]: ...
@overload
def select(**calls: PendingCall[Any]) -> PendingCall[Selected[Any]]: ...
def select(*calls: PendingCall[Any], **named: PendingCall[Any]) -> PendingCall[Selected[Any]]:
    """Race two or more durable calls: the first to end wins. `await` gives which one, and its result; or raises its
    failure.

    Name the branches (`select(paid=…, expired=…)`) or give them by position. In a run the winner is recorded when this
    returns, and a replay asks only that branch again. Of several that are ready at once the first one given wins. Each
    branch is one durable call that was built for this: a step, `sleep`, `recv`, `get_event`, `handle.result()` and so
    on. The others are given up: a step is cancelled, its `current().step.cancelled` is set and it records nothing (one
    that is not async goes on in its thread, and what it returns is dropped); a receive leaves its message; a run that
    is waited for goes on. What does not stop when it is cancelled is waited for. A stop of the run, or a database that
    is away, is no winner: the next claim races again, from the instants that are recorded.

    In a step, and outside a run, calls race in the same way and nothing is recorded. Raises `SelectMisused` at once for
    fewer than two branches, for starts, transactions and whatever is no durable call; `StepBuiltElsewhere`. These are
    errors of the race; what a branch raises is its own error.
    """
    if calls and named:
        raise SelectMisused("the branches of a select are either all named or none is")
    if named:
        return build_select(tuple(named.values()), tuple(named))
    return build_select(calls, None)
