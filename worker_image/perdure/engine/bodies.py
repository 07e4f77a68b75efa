"""Runs the function of a step once: async ones on the loop, sync ones in a thread, with a limit of time if asked."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, ClassVar

from perdure.errors import ReleaseRequested, StepTimeout

logger = logging.getLogger(__name__)

Function = Callable[..., Any]

CROWDED_SECONDS = 10.0
"""How long a sync step waits for a thread before that is said: in a healthy pool others end sooner."""

TELL_EVERY = 60.0
"""Seconds between two such records: one is enough to look for the steps that hang."""


class ThreadsGone(ReleaseRequested):
    """The pool of threads is shut down: the worker stops, another one will run the step."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How long an attempt of step `name` may take, in seconds. `stop` is called when that is over, before the body
    sees anything of it."""

    name: str
    seconds: float
    stop: Callable[[], None]

    def exceeded(self) -> StepTimeout:
        """What the attempt has failed with."""
        return StepTimeout(f"an attempt of step {self.name} ran longer than {self.seconds:g} s")


async def run_body(
    function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], limit: Limit, threads: Executor | None
) -> Any:
    """Run a function for at most so long; in `threads` if given.

    Raises `StepTimeout`. A body that does not end when it is cancelled is waited for, and has timed out all the same;
    one in a thread cannot be stopped: it is left behind. Its time counts from when it has a thread.
    """
    loop = asyncio.get_running_loop()
    timeout = asyncio.timeout(None if threads else limit.seconds)
    stops: list[asyncio.TimerHandle] = []

    def arm(when: float) -> None:
        with suppress(RuntimeError):  # the caller has left already
            timeout.reschedule(when)
            stops.append(loop.call_at(when, limit.stop))

    def begun() -> None:
        loop.call_soon_threadsafe(arm, loop.time() + limit.seconds)

    try:
        async with timeout:
            if threads is None:
                # What the timeout throws into the body comes a turn of the loop later than this.
                stops.append(loop.call_at(timeout.when() or 0.0, limit.stop))
                value = await function(*args, **kwargs)
            else:
                value = await run_in_thread(threads, function, args, kwargs, begun)
    except Exception as error:
        if timeout.expired():
            raise limit.exceeded() from error
        raise
    finally:
        for stop in stops:
            stop.cancel()
    if timeout.expired():
        raise limit.exceeded()
    return value


async def run_in_thread(
    threads: Executor,
    function: Function,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    begun: Callable[[], None] | None = None,
) -> Any:
    """Run a sync function in a thread that sees the caller's context variables. Awaits what it returns if it must.

    When the caller is cancelled the function goes on, if it has begun, and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    waiting = _Waiting(function, begun)
    try:
        future = loop.run_in_executor(threads, copy_context().run, _guarded, function, args, kwargs, waiting.over)
    except RuntimeError as error:
        raise ThreadsGone(f"no thread for a sync step: {error}") from error
    timer = loop.call_later(CROWDED_SECONDS, waiting.tell)
    try:
        ok, value = await future
    finally:
        timer.cancel()
    if not ok:
        raise value
    return await value if inspect.isawaitable(value) else value


class _Waiting:
    """A function that waits for a thread."""

    __slots__ = ("_begun", "_function", "_is_over")

    told_at: ClassVar[float] = -TELL_EVERY

    def __init__(self, function: Function, begun: Callable[[], None] | None) -> None:
        self._function = function
        self._begun = begun
        self._is_over = False

    def over(self) -> None:
        """It has one. From that thread."""
        self._is_over = True
        if self._begun is not None:
            self._begun()

    def tell(self) -> None:
        """It has waited for long: a worker all of whose threads hang claims runs, beats, and gets nowhere."""
        now = time.monotonic()
        if self._is_over or now - _Waiting.told_at < TELL_EVERY:
            return
        _Waiting.told_at = now
        logger.warning(
            "sync steps wait for a thread, %s for %g s already: all threads are busy, or hang in steps that were given "
            "up; let what may hang have a limit of its own, or raise PERDURE_THREADS",
            getattr(self._function, "__qualname__", "one"),
            CROWDED_SECONDS,
        )


def _guarded(
    function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], begun: Callable[[], None]
) -> tuple[bool, Any]:
    """The result or the error as a value: a future cannot hold every exception (`StopIteration` would hang it)."""
    try:
        begun()
        return True, function(*args, **kwargs)
    except BaseException as error:
        return False, error


def not_its_own(error: BaseException, task: asyncio.Task[Any]) -> bool:
    """Whether the body did not raise this itself: its task is cancelled, or the interpreter drops its coroutine."""
    if isinstance(error, asyncio.CancelledError):
        return task.cancelling() > 0
    return isinstance(error, GeneratorExit) and dropped_by_interpreter(task)


def dropped_by_interpreter(task: asyncio.Task[Any] | None) -> bool:
    """Whether this code runs because its coroutine is closed, not because its task takes a step."""
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True
