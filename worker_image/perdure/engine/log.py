"""What the engine asks of whoever makes steps durable: the worker's journal, or a test's memory.

One `StepLog` belongs to one claim of one run. It is the seam that keeps invariant 1 (a body starts only after its
row says running and everything it can see is committed) and invariant 3 (nothing is written once the fence moved).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Any, Protocol

from perdure.model.calls import CallAnswer, EventValue, InboxLook, Outcomes, OwnCall, PlainSend, Statuses
from perdure.model.listing import Question
from perdure.model.management import Verb
from perdure.model.rows import OwnedFlags, StepWrite
from perdure.model.streams import StreamLook
from perdure.store.clients import ExistingRun, Holder
from perdure.store.debounce import Debounce
from perdure.store.management import Done
from perdure.store.undo import Plan


class StepLog(Protocol):
    """Where the steps of one claim are written, in the order of `StepWrite.seq`."""

    def start(self, write: StepWrite) -> Awaitable[OwnedFlags]:
        """Write a step as running. Durable on return, with every earlier write of the run.

        Raises `OwnershipLost` when the run has another owner. A start is refused, and nothing of it written, when
        the run is cancelled: `OwnedFlags.cancel_mode` says so. Any other error means that this claim cannot go on:
        a `PerdureError` that is not retryable fails the run, everything else gives it back to the queue.
        The caller may be cancelled while it waits: the write then happened or not, and no body is started.
        """
        ...

    def record(self, write: StepWrite) -> None:
        """Queue the outcome of an attempt. Durable with the next start or the ending, or alone a moment later."""
        ...

    async def call(self, call: OwnCall) -> CallAnswer:
        """Carry out a call that has an effect outside the run's steps, after everything that was recorded before.

        Durable on return, the effect and the step that stands for it together, once however often it is sent. A cancel
        in the answer's flags: nothing was done. Raises as `start` does. Calls take effect in the order of their `seq`.
        """
        ...

    async def look_at_runs(self, ids: Sequence[str], *, ended: bool) -> Outcomes:
        """How other runs stand, or only those that have `ended`. Raises what the database says."""
        ...

    async def statuses_of(self, ids: Sequence[str]) -> Statuses:
        """How other runs stand, without what came of them: one question, however many. Raises as `look_at_runs`."""
        ...

    async def ask_for_news(self, ids: Sequence[str]) -> None:
        """Have the ends of other runs, which `AwaitRuns` waits for, told at once and not by a sweep. Raises as
        `look_at_runs`."""
        ...

    async def look_at_event(self, setter: str, name: str) -> EventValue:
        """The value of an event of the run `setter`. Raises as `look_at_runs`."""
        ...

    async def look_at_stream(self, writer: str, key: str, offset: int) -> StreamLook:
        """The value at an offset of a stream of the run `writer`, and how it stands. Raises as `look_at_runs`."""
        ...

    async def look_at_inbox(self, topic: str) -> InboxLook:
        """Whether a message of the topic is there for this run, which stays there. Raises as `look_at_runs`."""
        ...

    async def clock(self) -> datetime:
        """The time by the clock of the database. Raises as `look_at_runs`."""
        ...

    async def existing(self, run_id: str) -> ExistingRun | None:
        """The run that has this id. Raises as `look_at_runs`."""
        ...

    async def holder(self, queue: str | None, deduplication_id: str) -> Holder | None:
        """The run that holds this deduplication id in a queue, this run's own if None. Raises as `look_at_runs`."""
        ...

    async def rerun(self, run_id: str, token: int) -> None:
        """Have a run that has failed go through its body again, once for each `token`. Durable on return, in a
        transaction of its own (rule R15). Raises as `look_at_runs`."""
        ...

    async def debounce(self, asked: Debounce) -> str:
        """Postpone the run of a key, or start one, in the asking run's namespace, and in this worker's pool if `asked`
        names none; its id. Durable on return, once for each call, in a transaction of its own (rule R15). Raises as
        `look_at_runs`."""
        ...

    async def plainly(self, call: PlainSend) -> bool:
        """Carry out a call of a step's body, of which nothing is recorded; whether there is what it is for.

        Durable on return, once for each key however often it is sent. Raises `OwnershipLost` when the run has another
        owner, and what the database says.
        """
        ...

    async def manage(self, run_id: str, verb: Verb, write: StepWrite | None) -> Done:
        """Do something with another run, and record the step that stands for it; None: as part of a step.

        Durable on return, both or neither, in a transaction of its own (rule R15); sent again after an error it is done
        once if there is a step. Raises `OwnershipLost`, in a step `WorkflowConflict` or `NonExistentWorkflow`, when the
        run has another owner or is gone; what the verb is refused with; and what the database says.
        """
        ...

    async def promise(self, index: int, name: str, text: str) -> OwnedFlags:
        """Write down that the step `name`, with these arguments, undoes the one at this index. Durable on return. A
        cancel in the flags: nothing was written. Raises `OwnershipLost`, and what the database says."""
        ...

    async def undo(self, seq: int) -> Plan:
        """Begin to undo what the run has done, or go on with it. Durable on return, and from then on always the same;
        `seq` is the number of that write. Raises `OwnershipLost`, and what the database says."""
        ...

    async def inspect(self, question: Question) -> Any:
        """What is known of runs, None where the one that is asked for is not there. Raises as `look_at_runs`."""
        ...

    async def woken(self, seen: int) -> None:
        """Return when the run's count of wakes is another one than `seen`."""
        ...

    async def flush(self) -> None:
        """Return when everything that was recorded so far is durable: what is then written of this run elsewhere comes
        after it (rule R14). Raises as `start` does."""
        ...

    def admitted(self) -> bool:
        """Whether this process still holds the run by its own clock (the local lease), asked before each body."""
        ...
