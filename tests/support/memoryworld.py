"""What Postgres would hold beside one run's steps: other runs, messages, events. For the engine's tests only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
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
from perdure.store.clients import ExistingRun

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
    asked: list[list[str]] = field(default_factory=list)
    """Each question about other runs."""

    def carry_out(self, run: MemoryRun, call: OwnCall) -> CallAnswer:
        """As the statements do it."""
        flags = OwnedFlags(run.cancel_mode, run.suspended, run.wake_seq)
        refused = CallAnswer(flags, done=False)
        if run.cancel_mode is not None:
            return refused
        match call:
            case Start():
                if call.id in self.runs:
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
