"""What Postgres would hold beside one run's steps: other runs, messages, events. For the engine's tests only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perdure.model.calls import (
    AwaitEvent,
    CallAnswer,
    Otherwise,
    OwnCall,
    Receive,
    RunOutcome,
    Send,
    SetEvent,
    Start,
)
from perdure.model.rows import OwnedFlags
from perdure.model.states import RunStatus, StepStatus
from perdure.model.streams import AwaitStream, CloseStream, StreamLook, StreamState, WriteStream
from perdure.store.clients import ExistingRun, Holder
from perdure.store.debounce import Debounce

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
    now: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)
    """Where the clock of the database stands."""
    asked: list[list[str]] = field(default_factory=list)
    """Each question about other runs."""

    def carry_out(self, run: MemoryRun, call: OwnCall) -> CallAnswer:
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
    now: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)
    """Where the clock of the database stands."""
        """As the statements do it."""
        flags = OwnedFlags(run.cancel_mode, run.suspended, run.wake_seq)
        refused = CallAnswer(flags, done=False)
        if run.cancel_mode is not None:
            return refused
        match call:
            case Start():
                if call.id in self.runs or call.options.deduplication_id in self.holders:
                    return refused
                self.runs[call.id] = ExistingRun(call.id, "default", call.workflow, call.input)
                self.outcomes.setdefault(call.id, RunOutcome(RunStatus.ENQUEUED))
            case Send():
                if call.to not in self.runs:
                    return refused
                if (call.to, call.key) not in self.keys:
                    self.keys.add((call.to, call.key))
                    self.inboxes.setdefault((call.to, call.topic), []).append(call.value)
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
        run.write(call.step)
        return CallAnswer(flags, done=True, output=call.step.output)


async def until_woken(run: MemoryRun, seen: int) -> None:
    while run.wake_seq == seen:  # noqa: ASYNC110 - nothing else tells
        await asyncio.sleep(0)
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

