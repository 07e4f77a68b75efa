"""Waits for what others write, events and streams: one question to the database a tick for all who wait.

Used by the client. Each waiter is asked for soon at first and then ever more seldom, up to once a second; those who are
due at about the same time share a question. News bring a question forward. Promises: whoever begins to wait is asked
for at once; a wait goes on over an outage of a database that has answered before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from perdure.errors import ClientClosed, PerdureError, StoreUnavailable

logger = logging.getLogger(__name__)
"""The program's own log: this is a library in it."""

FIRST_SECONDS, LONGEST_SECONDS = 0.02, 1.0
"""First and longest pause between two questions for one waiter, doubled each time: most things come soon or late."""

MOST_ASKED = 200
"""Waiters in one question: a few milliseconds of Postgres' time."""

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(eq=False, slots=True)
class _Waiter(Generic[Q, A]):
    question: Q
    answer: asyncio.Future[A]
    due: float
    pause: float = FIRST_SECONDS


class Ticker(Generic[Q, A]):
    """`ask` answers questions in their order, None: not yet."""

    def __init__(self, name: str, ask: Callable[[Sequence[Q]], Awaitable[Sequence[A | None]]]) -> None:
        self._name = name
        self._ask = ask
        self._waiting: dict[_Waiter[Q, A], None] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._answered = False
        self._closed = False

    async def wait(self, question: Q, *, after: float = 0.0) -> A:
        """The answer as soon as there is one, asked for `after` seconds at first.

        Raises `ClientClosed`, and what the database says if it has never answered or refuses the question.
        """
        if self._closed:
            raise ClientClosed("the client was closed")
        loop = asyncio.get_running_loop()
        waiter: _Waiter[Q, A] = _Waiter(question, loop.create_future(), loop.time() + after)
        self._waiting[waiter] = None
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run(), name=f"perdure client: {self._name}")
        self._news.set()
        try:
            return await waiter.answer
        finally:
            self._waiting.pop(waiter, None)

    def hurry(self, concerned: Callable[[Q], bool] = lambda _: True) -> None:
        """Ask again at once for those whom it concerns."""
        for waiter in self._waiting:
            if concerned(waiter.question):
                waiter.due = -inf
                self._news.set()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def ask_now(self) -> None:
        """Ask for everybody at once. Raises what the database says."""
        asked = list(self._waiting)
        if asked:
            self._answer(asked, await self._ask([each.question for each in asked]))

    def fail(self, error: Exception) -> None:
        """Every wait ends with the error."""
        self._fail(list(self._waiting), error)

    async def close(self) -> None:
        """Every wait ends with `ClientClosed`."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.fail(ClientClosed("the client was closed while it waited"))

    # -- the background

    async def _run(self) -> None:
        """As long as somebody waits."""
        failures = 0
        while self._waiting:
            await self._until_due()
            await asyncio.sleep(0)  # whoever begins to wait in the same turn of the loop shares the question
            asked = self._take()
            if not asked:
                continue
            try:
                answers = await self._ask([each.question for each in asked])
            except StoreUnavailable as error:
                failures += 1
                if not self._answered:
                    # A database that has never answered is rather a wrong address than an outage.
                    self._fail(asked, error)
                elif failures & (failures - 1) == 0:
                    logger.warning("the database does not answer; %d waits go on: %s", len(self._waiting), error)
            except PerdureError as error:
                self._fail(asked, error)
            except Exception as error:
                logger.exception("what is waited for could not be asked for")
                self._fail(asked, StoreUnavailable(f"what is waited for could not be asked for: {error!r}"))
            else:
                failures, self._answered = 0, True
                self._answer(asked, answers)

    def _answer(self, asked: Sequence[_Waiter[Q, A]], answers: Sequence[A | None]) -> None:
        for waiter, answer in zip(asked, answers, strict=True):
            if answer is not None and not waiter.answer.done():
                waiter.answer.set_result(answer)
                self._waiting.pop(waiter, None)

    async def _until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            left = min((each.due for each in self._waiting), default=inf) - loop.time()
            if left <= 0 or left == inf:
                return
            try:
                async with asyncio.timeout(left):
                    await self._news.wait()
            except TimeoutError:
                return

    def _take(self) -> list[_Waiter[Q, A]]:
        """Whom to ask for now: all that are due, and if there is one, those that soon will be."""
        now = asyncio.get_running_loop().time()
        if not any(each.due <= now for each in self._waiting):
            return []
        chosen = [each for each in self._waiting if each.due <= now + each.pause / 2][:MOST_ASKED]
        for waiter in chosen:
            waiter.due = now + waiter.pause
            waiter.pause = min(LONGEST_SECONDS, waiter.pause * 2)
            # Behind those that were not taken, should there be more than one question takes.
            del self._waiting[waiter]
            self._waiting[waiter] = None
        return chosen

    def _fail(self, waiters: Sequence[_Waiter[Q, A]], error: Exception) -> None:
        for waiter in waiters:
            self._waiting.pop(waiter, None)
            if not waiter.answer.done():
                waiter.answer.set_exception(copy(error))  # each its own: raising adds a traceback to it
