"""What a test works with: a worker and a client in this process, on a database of the test's own.

An `Instance`, so that everything that a program does with one a test does as well; beside that it lets time pass, has
steps fail and workers crash, and shows what a run has recorded.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from perdure.api import registering
from perdure.client.handle import Handle
from perdure.engine.encoding import MARK
from perdure.engine.registry import Registry
from perdure.engine.serialization import Codec, Serializer
from perdure.errors import InvalidArgument, NotLaunched, PerdureError
from perdure.instance.instance import Instance, InstanceSettings
from perdure.model.listing import MAX_PAGE_WITH_PAYLOADS, StepDetails
from perdure.model.start import Seconds
from perdure.store.pool import connect
from perdure.testing.execution import CRASHED, WatchedExecution
from perdure.testing.faults import At, Fault, Faults, Named, Place, name_of
from perdure.testing.history import History, history_of
from perdure.testing.time import MOST_HOPS, PAUSE, Look, Scope, Time, TimeStands
from perdure.worker.worker import Worker

PATIENCE = 10.0
"""Seconds, of the real ones, for what a test waits for: no step of a test takes longer, and one that hangs is said."""

SETTINGS: InstanceSettings = {
    "slots": 20,
    "poll_seconds": 0.2,
    # Whoever stops in a debugger for some minutes should find the run where it was.
    "lease_seconds": 600.0,
    "drain_seconds": 5.0,
    # Time is skipped by years: nothing of the test should be removed meanwhile.
    "retention_seconds": 0.0,
}

CENTURY = timedelta(days=36_500)


def _stay(code: int) -> None:
    """The process of a test does not end because its worker is lost."""


class Waited:
    """One wait of a test, over which time passes."""

    def __init__(self) -> None:
        self.hops = 0
        """Looks at which nothing was left to do."""
        self._since: float | None = None
        self._now = 0.0

    def look(self, look: Look, now: float) -> None:
        """Nothing is left to do at `now`, and this is how things stand."""
        self.hops += 1
        self._now = now
        # Schedules tick for ever: what they start may be what is waited for, and mostly is not.
        if look.runs_in is not None:
            self._since = None
        elif self._since is None:
            self._since = now

    def in_vain(self, patience: float) -> bool:
        """Whether nothing will come of it."""
        return self.hops > MOST_HOPS or (self._since is not None and self._now - self._since > patience)


class Environment(Instance):
    """An instance for tests.

    async with Environment(url) as env:
        handle = await remind.start("Ada")
        await env.skip(timedelta(days=30))
        assert await handle.result() == "reminded"

    `url`: of a migrated database that nobody else uses. `registry`: where its workflows are, by default what
    `@perdure.workflow` registers. `always_replay`: each call is replayed as soon as its outcome is recorded, so that
    whatever a replay would do otherwise fails the run (`UnexpectedStep`). `auto_skip`: while the end of a run, an event
    or a value of a stream is waited for, and nothing is left to do, time is skipped. `patience`: real seconds after
    which the test fails when nothing comes to rest, or no end of a run comes any more. The rest as for `Instance`.

    Left without an error, it raises `AssertionError` for faults that were ordered and never happened.
    """

    def __init__(
        self,
        url: str | None = None,
        namespace: str = "default",
        pool: str = "default",
        *,
        registry: Registry | None = None,
        always_replay: bool = False,
        auto_skip: bool = True,
        patience: float = PATIENCE,
        listen: bool = True,
        serializer: Serializer | None = None,
        codecs: Sequence[Codec] = (),
        **settings: Unpack[InstanceSettings],
    ) -> None:
        given: InstanceSettings = {**SETTINGS, **settings}
        its = registering.default_registry if registry is None else registry
        super().__init__(
            url,
            namespace,
            pool,
            registry=its,
            listen=listen,
            exit_process=_stay,
            serializer=serializer,
            codecs=codecs,
            **given,
        )
        # A pod that registers anew is known to have died before: so nobody waits for a lease after a crash.
        self._settings = self._settings.model_copy(update={"pod_uid": f"test-{secrets.token_hex(8)}"})
        self.always_replay = always_replay
        self.auto_skip = auto_skip
        self.patience = patience
        self.faults = Faults()
        self._time: Time | None = None
        self._chores: set[asyncio.Task[None]] = set()
        self._trouble: BaseException | None = None

    # -- its life

    async def launch(self) -> Self:
        """See `Instance.launch`."""
        await super().launch()
        worker = self._the_worker()
        connection = await connect(self._address, application_name="perdure-testing")
        settings = self._settings
        scope = Scope(self.namespace, self.pool, settings.queues, self.registry.manifest(), settings.version)
        self._time = Time(connection, scope, wake=worker.wake, at_work=lambda: worker.busy > 0)
        self._closing = connection.close
        self._chore(self._pass_the_time(self._time))
        return self

    async def shutdown(self) -> None:
        """See `Instance.shutdown`. Raises what has gone wrong with the time, if anything did."""
        chores = tuple(self._chores)
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        try:
            await super().shutdown()
        finally:
            if self._time is not None:
                self._time = None
                await self._closing()
        if self._trouble is not None:
            raise self._trouble

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()
        if kind is None:
            self.faults.check()

    async def _working(self) -> Worker:
        worker = Worker(
            self._settings,
            self.registry,
            database_url=self._address,
            exit_process=self._exit_process,
            execution=partial(WatchedExecution, self),
            skipped=lambda: self.skipped,
        )
        await worker.start()
        try:
            await worker.wait_until_working()
        except BaseException:
            await asyncio.shield(worker.stop())
            raise
        return worker

    # -- time

    @property
    def skipped(self) -> timedelta:
        """By how much the time of the runs is ahead of the clocks."""
        return timedelta() if self._time is None else self._time.skipped

    def now(self) -> datetime:
        """The time as runs have it: `perdure.now` in a workflow."""
        return datetime.now(UTC) + self.skipped

    async def skip(self, length: Seconds) -> None:
        """Let so much time pass, timedelta or seconds: whatever sleeps, waits for another attempt, has a deadline or a
        schedule meets every instant on the way in its order. On return all of it is done that this time brings.

        Raises `TimeStands` when runs do not come to rest, `InvalidArgument` for less than no time.
        """
        try:
            span = length if isinstance(length, timedelta) else timedelta(seconds=length)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"a timedelta or seconds are skipped, not {length!r}: {error}") from None
        if span < timedelta():
            raise InvalidArgument(f"time does not go back: skip({length!r})")
        await self._its_time().skip(span, self.patience)

    async def skip_until_idle(self, most: timedelta = CENTURY) -> timedelta:
        """Let time pass until no run waits for any: all have ended, or wait for somebody. How much that was.

        Schedules start their runs on the way and hold nothing up. Raises `TimeStands` when it would be more than
        `most`, and as `skip`.
        """
        return await self._its_time().skip_all(most, self.patience)

    async def settle(self) -> None:
        """Wait until no run works or could: without time, or somebody, nothing goes on. Raises `TimeStands`."""
        await self._its_time().rest(self.patience)

    # -- what goes wrong

    def fail(
        self,
        step: str | Named,
        error: Exception | type[Exception],
        *,
        attempt: int = 1,
        times: int = 1,
        run_id: str | None = None,
    ) -> None:
        """Have an attempt of a step raise this error instead of running its body; `times` attempts in a row, the first
        of them `attempt`. `step`: itself, its name, or the end of it. `run_id`: of this run only.

        The next call of the step that comes to that attempt is meant, as often as it is ordered. Raises
        `InvalidArgument`.
        """
        kind = error if isinstance(error, type) else type(error)
        if not issubclass(kind, Exception):
            raise InvalidArgument(f"a step fails with an exception or a class of them, not {error!r}")
        self.faults.order(Fault(name_of(step), attempt, times, run_id, error=error))

    def crash(
        self,
        step: str | Named,
        at: Place | At = "started",
        *,
        attempt: int = 1,
        times: int = 1,
        run_id: str | None = None,
    ) -> None:
        """Have the worker die at a step, or at a durable call such as `sleep`, as if it were killed: everything that it
        runs stops there, and nothing more is written. Another one takes over at once.

        `at`: `before` it is recorded, `started` (recorded, its body has not begun), `done` (the body has ended, which
        is not recorded), `committed` (it is, and the workflow has not gone on). What was recorded before is durable. A
        call that does something outside of its run (`send`, a start) is recorded with that: of it there is nothing
        between `before` and `committed`. The rest as for `fail`.
        """
        self.faults.order(Fault(name_of(step), attempt, times, run_id, at=At(at)))

    def crash_now(self) -> None:
        """Have the worker die here and now."""
        worker = self._the_worker()
        before = worker.id
        worker.lose(CRASHED)
        self._chore(self._taken_over(worker, before))

    # -- what is recorded

    async def history(self, run: str | Handle[Any] | Any) -> History:
        """The durable calls that a run has recorded, given by its handle or id. Raises `NonExistentWorkflow`,
        `InvalidArgument`."""
        run_id = run if isinstance(run, str) else getattr(run, "id", None)
        if not isinstance(run_id, str):
            raise InvalidArgument(f"a run is given by its handle or id, not {run!r}")
        steps: list[StepDetails] = []
        while True:
            page = await self.list_steps(run_id, after=steps[-1].index if steps else -1, limit=MAX_PAGE_WITH_PAYLOADS)
            steps += page
            if len(page) < MAX_PAGE_WITH_PAYLOADS:
                return history_of(run_id, [await self._readable(step) for step in steps])

    async def _readable(self, step: StepDetails) -> StepDetails:
        what = f"call {step.index}"
        return replace(step, input=await self._json(step.input, what), output=await self._json(step.output, what))

    async def _json(self, text: str | None, what: str) -> str | None:
        """A value that cannot be read here stays as it is stored."""
        if text is None or not text.startswith(MARK):
            return text
        with suppress(PerdureError):
            return await self.serializers.fetch(text, what)
        return text

    # -- in the background

    def _its_time(self) -> Time:
        if self._time is None:
            raise NotLaunched(f"time cannot pass: the environment {self.life}")
        return self._time

    def _the_worker(self) -> Worker:
        if self._worker is None:
            raise NotLaunched(f"there is no worker: the environment {self.life}")
        return self._worker

    def _chore(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._over)

    def _over(self, chore: asyncio.Task[None]) -> None:
        self._chores.discard(chore)
        if not chore.cancelled():
            self._trouble = chore.exception() or self._trouble

    async def _taken_over(self, worker: Worker, before: str | None) -> None:
        while worker.id == before:  # noqa: ASYNC110 - the worker registers by itself
            await asyncio.sleep(PAUSE)
        await self._its_time().take_over()

    async def _pass_the_time(self, time: Time) -> None:
        """While somebody waits."""
        waited = Waited()
        while True:
            await asyncio.sleep(PAUSE)
            if not self.auto_skip or not self._waited_for() or time.passing.locked():
                waited = Waited()
                continue
            try:
                async with time.passing:
                    await self._pass_some(time, waited)
            except Exception as error:
                self._fail_waits(error)
                raise

    async def _pass_some(self, time: Time, waited: Waited) -> None:
        look = await time.rested()
        if look is None or await self._hears_news(time):
            return
        waited.look(look, asyncio.get_running_loop().time())
        if waited.in_vain(self.patience):
            sentence = f"nothing has ended in {waited.hops} instants, and nothing is left that time would bring"
            self._fail_waits(TimeStands(f"{sentence}; what waits: {'; '.join(look.waits) or 'nothing'}"))
        await time.hop(look)

    def _waited_for(self) -> int:
        return len(self._watcher.waiting) + self.waits.waiting

    async def _hears_news(self, time: Time) -> bool:
        """Whether one of those who wait has it already: polls and notifications are slower than skipped time."""
        before = self._waited_for()
        for run_id in await time.ended(self._watcher.waiting):
            self._watcher.ended(run_id)
            return True
        await self.waits.ask_now()
        return self._waited_for() != before

    def _fail_waits(self, error: Exception) -> None:
        for run_id in self._watcher.waiting:
            self._watcher.fail(run_id, error)
        self.waits.fail(error)
