"""The engine's `StepLog` in memory, with the rules of the journal's statement: a test double of that protocol only.

`MemoryRun` is what Postgres would hold of one run and lives through any number of claims; `MemoryLog` is the log of
one claim. What is recorded but not yet committed is lost with the claim, as it is when a process dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from perdure.engine.execute import Execution
from perdure.engine.registry import Registry
from perdure.errors import OwnershipLost
from perdure.model.calls import CallAnswer, EventValue, InboxLook, Outcomes, OwnCall, PlainSend, Statuses
from perdure.model.listing import Question
from perdure.model.management import Verb
from perdure.model.outcome import Ending, ErrorRecord
from perdure.model.rows import UNDO, ClaimedRun, OwnedFlags, RecordedStep, StepWrite
from perdure.model.serialization import Serialization
from perdure.model.states import CancelMode, StepStatus, Undo
from perdure.model.streams import StreamLook
from perdure.store.clients import ExistingRun, Holder
from perdure.store.debounce import Debounce
from perdure.store.management import Done
from perdure.store.undo import Part, Plan

from tests.support.memoryworld import World, until_woken


@dataclass
class MemoryRun:
    """One run and its step rows. `elapsed` is how far the database's clock is past the last write."""

    workflow: str
    input: str = "{}"
    definition: str | None = None
    id: str = "run-1"
    fence: int = 0
    rows: dict[int, RecordedStep] = field(default_factory=dict)
    cancel_mode: CancelMode | None = None
    suspended: bool = False
    deadline_in: float | None = None
    elapsed: float = 0.0
    wake_seq: int = 0
    rewinds: int = 0
    seed: str | None = None
    serialization: Serialization | None = None
    undo: Undo | None = None
    error: ErrorRecord | None = None
    promises: dict[int, tuple[str, str]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    plan: Plan | None = None
    world: World = field(default_factory=World)

    def claim(self) -> ClaimedRun:
        """Own the run under the next fence, with all its recorded steps."""
        self.fence += 1
        steps = tuple(
            row if row.wake_in is None else replace(row, wake_in=row.wake_in - self.elapsed)
            for _, row in sorted(self.rows.items())
        )
        return ClaimedRun(
            id=self.id,
            fence=self.fence,
            namespace="default",
            name="order-1",
            workflow=self.workflow,
            input=self.input,
            definition=self.definition,
            run_attempts=0,
            max_run_attempts=1,
            recoveries=0,
            wake_seq=self.wake_seq,
            cancel_mode=self.cancel_mode,
            suspended=self.suspended,
            deadline_in=self.deadline_in,
            steps=steps,
            rewinds=self.rewinds,
            seed=self.seed,
            serialization=self.serialization,
            undo=self.undo,
        )

    def write(self, write: StepWrite) -> None:
        """The upsert: a final row never changes, an input once written stays."""
        old = self.rows.get(write.index)
        if old is not None and old.status.final:
            return
        text = write.input if write.input is not None else (old.input if old else None)
        assert text is not None, f"the first write of step {write.index} in this claim has no input"
        self.rows[write.index] = RecordedStep(
            index=write.index,
            name=write.name,
            status=write.status,
            input=text,
            output=write.output,
            error=write.error,
            attempts=write.attempts,
            attempt_errors=write.attempt_errors,
            wake_at=None,
            wake_in=write.wake_in,
        )
        if write.status is StepStatus.SUCCEEDED:
            self.order.append(write.index)

    def failed(self, error: ErrorRecord) -> None:
        """The run has failed for good: what was promised is done in the next claim."""
        self.error, self.undo = error, Undo.FAILED

    def cancelled(self) -> None:
        """Somebody wants it to be cancelled, and undone before."""
        self.cancel_mode, self.undo = CancelMode.COMPENSATE, Undo.REQUESTED

    def begin_undo(self) -> Plan:
        """What is undone, the same at every claim."""
        if self.plan is None:
            parts = tuple(
                Part(index, self.rows[index].name, self.rows[index].output or "null", *self.promises[index])
                for index in reversed(self.order)
                if index in self.promises
            )
            at = max(self.rows) + 1 if parts else None
            reason = "" if self.undo is Undo.FAILED else "it is enough"
            self.cancel_mode = None
            if at is not None:
                self.write(StepWrite(at, 0, UNDO, StepStatus.SUCCEEDED, '"why"', "[]"))
            self.plan = Plan(OwnedFlags(None, False, 0), at, self.error, reason, parts)
        return self.plan

    def statuses(self) -> list[tuple[str, StepStatus]]:
        """Name and status of each row, by index."""
        return [(row.name, row.status) for _, row in sorted(self.rows.items())]


class MemoryLog:
    """The log of one claim. `before_start` runs in every start before anything is written."""

    def __init__(self, run: MemoryRun, before_start: Callable[[StepWrite], None] | None = None) -> None:
        self.run = run
        self.fence = run.fence
        self.writes: list[StepWrite] = []
        self.calls: list[OwnCall] = []
        self.pending: list[StepWrite] = []
        self.lease = True
        self.gate: asyncio.Event | None = None
        self.before_start = before_start
        self.before_plain: Callable[[PlainSend], None] | None = None

    async def start(self, write: StepWrite) -> OwnedFlags:
        self.writes.append(write)
        if self.before_start is not None:
            self.before_start(write)
        if self.gate is not None:
            await self.gate.wait()
        self.commit()
        if self.run.cancel_mode is None:
            self.run.write(write)
        return OwnedFlags(self.run.cancel_mode, self.run.suspended, 0)

    def record(self, write: StepWrite) -> None:
        assert self.run.fence == self.fence, "a run that has lost its owner writes"
        self.writes.append(write)
        self.pending.append(write)

    async def call(self, call: OwnCall) -> CallAnswer:
        self.calls.append(call)
        if self.gate is not None:
            await self.gate.wait()
        self.commit()
        return self.run.world.carry_out(self.run, call)

    async def look_at_runs(self, ids: Sequence[str], *, ended: bool) -> Outcomes:
        world = self.run.world
        world.asked.append(list(ids))
        found = {each: world.outcomes[each] for each in ids if each in world.outcomes}
        shown = {each: outcome for each, outcome in found.items() if outcome.status.finished or not ended}
        return Outcomes(shown, self.run.wake_seq)

    async def statuses_of(self, ids: Sequence[str]) -> Statuses:
        world = self.run.world
        world.asked.append(list(ids))
        found = {each: world.outcomes[each] for each in ids if each in world.outcomes}
        own = frozenset(each for each, outcome in found.items() if outcome.own)
        return Statuses({each: outcome.status for each, outcome in found.items()}, own, self.run.wake_seq)

    async def ask_for_news(self, ids: Sequence[str]) -> None:
        self.run.world.news.append(tuple(ids))

    async def look_at_event(self, setter: str, name: str) -> EventValue:
        return EventValue(self.run.world.events.get((setter, name)), self.run.wake_seq)

    async def look_at_stream(self, writer: str, key: str, offset: int) -> StreamLook:
        return self.run.world.look_at_stream(writer, key, offset, self.run.wake_seq)

    async def look_at_inbox(self, topic: str) -> InboxLook:
        return InboxLook(bool(self.run.world.inboxes.get((self.run.id, topic))), self.run.wake_seq)

    async def clock(self) -> datetime:
        return self.run.world.now

    async def existing(self, run_id: str) -> ExistingRun | None:
        return self.run.world.runs.get(run_id)

    async def holder(self, queue: str | None, deduplication_id: str) -> Holder | None:
        return self.run.world.holders.get(deduplication_id)

    async def rerun(self, run_id: str, token: int) -> None:
        self.run.world.rerun(run_id, token)

    async def debounce(self, asked: Debounce) -> str:
        return self.run.world.debounce(asked)

    async def plainly(self, call: PlainSend) -> bool:
        if self.before_plain is not None:
            self.before_plain(call)
        if self.run.fence != self.fence:
            raise OwnershipLost
        return self.run.world.send(call.to, call.topic, call.key, call.value)

    async def manage(self, run_id: str, verb: Verb, write: StepWrite | None) -> Done:
        if self.run.fence != self.fence:
            raise OwnershipLost
        return self.run.world.manage(self.run, run_id, verb, write)

    async def promise(self, index: int, name: str, text: str) -> OwnedFlags:
        self.commit()
        if self.run.cancel_mode is None:
            self.run.promises[index] = (name, text)
            self.run.undo = Undo.PROMISED
        return OwnedFlags(self.run.cancel_mode, self.run.suspended, 0)

    async def undo(self, seq: int) -> Plan:
        self.commit()
        return self.run.begin_undo()

    async def inspect(self, question: Question) -> Any:
        return self.run.world.inspect(question)

    async def woken(self, seen: int) -> None:
        await until_woken(self.run, seen)

    async def flush(self) -> None:
        self.commit()

    def admitted(self) -> bool:
        return self.lease

    def commit(self) -> None:
        """Make what was recorded durable; raises when the run has another owner."""
        if self.run.fence != self.fence:
            raise OwnershipLost("the fence has moved on")
        for write in self.pending:
            self.run.write(write)
        self.pending.clear()


async def claim_and_run(
    run: MemoryRun, registry: Registry, threads: Executor, *, commit: bool = True, park_after: float = 1.0
) -> Ending:
    """One claim from start to ending; the last results are committed with the ending unless told otherwise."""
    claimed = run.claim()
    log = MemoryLog(run)
    ending = await Execution(claimed, registry, log, threads=threads, park_after=park_after).run()
    if commit:
        log.commit()
    return ending
