"""What Postgres would hold beside one run's steps: other runs, messages, events. For the engine's tests only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from perdure.model.calls import (
    AwaitEvent,
    AwaitRuns,
    CallAnswer,
    Otherwise,
    OwnCall,
    Receive,
    RunOutcome,
    Send,
    SetEvent,
    Start,
    is_plain,
)
from perdure.model.listing import Question
from perdure.model.management import Fork, Managed, Verb
from perdure.model.rows import OwnedFlags, StepWrite
from perdure.model.states import RunStatus, StepStatus
from perdure.model.streams import AwaitStream, CloseStream, StreamLook, StreamState, WriteStream
from perdure.store.clients import ExistingRun, Holder
from perdure.store.debounce import Debounce
from perdure.store.management import Done, output_of

if TYPE_CHECKING:
    from tests.support.memorylog import MemoryRun


@dataclass
class World:
    """Runs by id, as (what they are, how they stand), inboxes by (run, topic), events by (run, name)."""

    runs: dict[str, ExistingRun] = field(default_factory=dict)
    outcomes: dict[str, RunOutcome] = field(default_factory=dict)
    inboxes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    keys: set[tuple[str, str]] = field(default_factory=set)
    events: dict[tuple[str, str], str] = field(default_factory=dict)
    waits: set[tuple[str, str]] = field(default_factory=set)
    run_waits: list[str] = field(default_factory=list)
    """Runs whose ends are to wake, in the order in which they were asked for."""
    news: list[tuple[str, ...]] = field(default_factory=list)
    """Each request to be told at once."""
    streams: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    closed: set[tuple[str, str]] = field(default_factory=set)
    stream_waits: set[tuple[str, str, int]] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    """Runs of streams that do not exist."""
    holders: dict[str | None, Holder] = field(default_factory=dict)
    """Runs by the deduplication id that they hold, whatever the queue."""
    debounced: list[Debounce] = field(default_factory=list)
    """Each request to postpone a run or start one; what is postponed is that of the first."""
    before_debounce: Callable[[], object] = lambda: None
    reruns: list[tuple[str, int]] = field(default_factory=list)
    """What was run again, and by which start."""
    managed: list[tuple[str, Verb]] = field(default_factory=list)
    """What was done with which runs."""
    refuses: Exception | None = None
    """What each verb is refused with."""
    answers: dict[Question, Any] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    now: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)
    """Where the clock of the database stands."""
    asked: list[list[str]] = field(default_factory=list)
    """Each question about other runs."""

    def debounce(self, asked: Debounce) -> str:
        self.before_debounce()
        self.debounced.append(asked)
        return next(each.run.id for each in self.debounced if each.key == asked.key)

    def manage(self, run: MemoryRun, run_id: str, verb: Verb, write: StepWrite | None) -> Done:
        """As the transaction does it: once for each step."""
        flags = OwnedFlags(run.cancel_mode, run.suspended, run.wake_seq)
        if write is not None:
            if run.cancel_mode is not None:
                return Done(flags, None, None)
            row = run.rows.get(write.index)
            if row is not None and row.status.final:
                return Done(flags, row.output, None)
        if self.refuses is not None:
            raise self.refuses
        self.managed.append((run_id, verb))
        managed = Managed(verb.new_id if isinstance(verb, Fork) else run_id, RunStatus.ENQUEUED, "default", "default")
        output = output_of(verb, managed)
        if write is not None:
            run.write(replace(write, output=output))
        return Done(flags, output, managed)

    def inspect(self, question: Question) -> Any:
        """The answer that the test has given, None for there is no such run."""
        self.questions.append(question)
        return self.answers.get(question)

    def carry_out(self, run: MemoryRun, call: OwnCall) -> CallAnswer:
        """As the statements do it."""
        flags = OwnedFlags(run.cancel_mode, run.suspended, run.wake_seq)
        refused = CallAnswer(flags, done=False)
        if run.cancel_mode is not None and not is_plain(call):
            return refused
        match call:
            case Start():
                if call.id in self.runs or call.options.deduplication_id in self.holders:
                    return refused
                self.runs[call.id] = ExistingRun(call.id, "default", call.workflow, call.input)
                self.outcomes.setdefault(call.id, RunOutcome(RunStatus.ENQUEUED))
            case Send():
                if not self.send(call.to, call.topic, call.key, call.value):
                    return refused
            case Receive():
                inbox = self.inboxes.get((run.id, call.topic), [])
                if not inbox and call.otherwise is not Otherwise.NONE:
                    if call.otherwise is Otherwise.WAITING:
                        old = run.rows.get(call.step.index)
                        wake_in = old.wake_in if old is not None else call.step.wake_in
                        run.write(replace(call.step, status=StepStatus.WAITING, wake_in=wake_in))
                    return refused
                output = inbox.pop(0) if inbox else "null"
                run.write(replace(call.step, output=output, wake_in=None))
                return CallAnswer(flags, done=True, output=output)
            case SetEvent():
                self.events[run.id, call.event] = call.value
            case AwaitEvent():
                self.waits.add((call.run_id, call.event))
                old = run.rows.get(call.step.index)
                run.write(call.step if old is None else replace(call.step, wake_in=old.wake_in))
                return refused
            case AwaitRuns():
                self.run_waits += call.runs
                return refused
            case WriteStream():
                if (run.id, call.key) in self.closed:
                    return refused
                self.streams.setdefault((run.id, call.key), []).append(call.value)
                if call.plain:
                    return CallAnswer(flags, done=True)
            case CloseStream():
                self.closed.add((run.id, call.key))
                if call.plain:
                    return CallAnswer(flags, done=True)
            case AwaitStream():
                self.stream_waits.add((call.run_id, call.key, call.offset))
                old = run.rows.get(call.step.index)
                run.write(call.step if old is None else replace(call.step, wake_in=old.wake_in))
                return refused
        run.write(call.step)
        return CallAnswer(flags, done=True, output=call.step.output)

    def send(self, to: str, topic: str, key: str, value: str) -> bool:
        """Put a message there, if there is such a run."""
        if to not in self.runs:
            return False
        if (to, key) not in self.keys:
            self.keys.add((to, key))
            self.inboxes.setdefault((to, topic), []).append(value)
        return True

    def look_at_stream(self, run_id: str, key: str, offset: int, wake_seq: int) -> StreamLook:
        """As the statement does it. Runs that are asked for are there unless they were made `gone`."""
        values = self.streams.get((run_id, key), [])
        outcome = self.outcomes.get(run_id)
        if run_id in self.gone:
            state = StreamState.NO_RUN
        elif (run_id, key) in self.closed:
            state = StreamState.CLOSED
        else:
            state = StreamState.RUN_ENDED if outcome is not None and outcome.status.finished else StreamState.OPEN
        value = values[offset] if offset < len(values) else None
        return StreamLook(value, state, len(values), wake_seq)

    def rerun(self, run_id: str, token: int) -> None:
        """As the statements do it."""
        there = self.runs[run_id]
        if there.failed and there.token != token:
            self.reruns.append((run_id, token))
            self.runs[run_id] = replace(there, status=RunStatus.ENQUEUED, token=token)


async def until_woken(run: MemoryRun, seen: int) -> None:
    while run.wake_seq == seen:  # noqa: ASYNC110 - nothing else tells
        await asyncio.sleep(0)
