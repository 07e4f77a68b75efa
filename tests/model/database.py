"""What the database does in the protocol's model: each statement as one step, under the rules that are on."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model import undoing
from tests.model.state import (
    ASKED,
    CANCELLED,
    DEAD,
    ENQUEUED,
    FAILED,
    FINAL,
    LIVE,
    OF_FAILED,
    PROMISED,
    RUNNING,
    STARTED,
    SUCCEEDED,
    WAITING,
    Answer,
    Run,
    State,
    Statement,
    Step,
    Worker,
)

RULES = (
    "R1",
    "R2",
    "R3",
    "R4",
    "R5",
    "R6",
    "R7",
    "R8",
    "R9",
    "R10",
    "R11",
    "R12",
    "R13",
    "R16",
    "R17",
    "R18",
    "R19",
    "R20",
    "R21",
    "sweep",
)
"""What can be switched off. `sweep`: who waits for something that is there is woken again and again."""


@dataclass(frozen=True)
class Database:
    """Statements. `off` names the rules that are switched off."""

    off: frozenset[str]
    program: tuple[str, ...] = ()

    def on(self, rule: str) -> bool:
        """Whether the rule holds."""
        return rule not in self.off

    def disowned(self, run: Run, status: str, recoveries: int = 0) -> Run:
        """The row of a run that from now on is nobody's, or stays so (rule R2)."""
        return run._replace(
            status=status,
            owner=-1,
            fence=run.fence + self.on("R2"),
            epoch=run.epoch + 1,
            recoveries=run.recoveries + recoveries,
        )

    def execute(self, state: State, statement: Statement) -> tuple[State, Answer, str]:
        """One statement: the state after it, its answer, what it broke."""
        if statement.kind == "claim":
            return self._claim(state, statement)
        run = state.run
        owned = run.fence == statement.fence
        if self.on("R1"):
            owned = owned and run.status == RUNNING and run.owner == statement.worker
        if not owned:
            return state, Answer(False), ""
        violation = "" if run.epoch == statement.epoch else "a write by somebody who does not own the run any more"
        answer = Answer(True, run.fence, run.epoch, wake=run.wake, cancel=run.cancel, suspended=run.suspended)
        if statement.kind == "recv":
            state, answer, broken = self._receive(state, statement, answer)
            return state, answer, violation or broken
        if statement.kind == "promise":
            return undoing.promised(state, run, statement.start), answer, violation
        if statement.kind == "undo":
            return *undoing.begun(self.program, state, run, answer), violation
        if statement.kind == "listen":
            return state._replace(wait=True), answer, violation
        steps, broken = state.steps, ""
        if statement.finish >= 0:
            steps, broken = self._upsert(steps, statement.finish, FINAL, statement.fence, statement.seq)
        if statement.start >= 0 and not run.cancel:
            steps, other = self._upsert(steps, statement.start, STARTED, statement.fence, statement.seq + 1)
            broken = broken or other
        violation = violation or broken
        if statement.ending:
            run, broken = self._end(run, statement)
            violation = violation or broken
            answer = answer._replace(ended=run.epoch != answer.epoch)
        return state._replace(run=run, steps=steps), answer, violation

    def _claim(self, state: State, statement: Statement) -> tuple[State, Answer, str]:
        run, worker = state.run, state.workers[statement.worker]
        ready = run.status == ENQUEUED and (not run.suspended or (run.cancel and self.on("R10")))
        if not ready or (self.on("R4") and (worker.state != LIVE or worker.out)):
            return state, Answer(False), ""
        taken = run._replace(
            status=RUNNING,
            owner=statement.worker,
            fence=run.fence + 1,
            epoch=run.epoch + 1,
            recoveries=run.recoveries + (0 if self.on("R12") else 1),
        )
        rows = state.steps[: len(self.program)]
        position = next((at for at, step in enumerate(rows) if step.status != FINAL), len(rows))
        answer = Answer(
            True, taken.fence, taken.epoch, position, run.wake, run.cancel, run.suspended, undoes=run.undo >= ASKED
        )
        return state._replace(run=taken), answer, miscounted(taken, state)

    def _receive(self, state: State, statement: Statement, answer: Answer) -> tuple[State, Answer, str]:
        at = statement.start
        if state.steps[at].status == FINAL:
            return state, answer, ""
        if state.message != 1:
            steps = state.steps
            if self.on("R16"):
                steps, _ = self._upsert(steps, at, STARTED, statement.fence, statement.seq)
            return state._replace(steps=steps), answer._replace(got=False), ""
        if self.on("R16") and (state.steps[at].fence, state.steps[at].seq) >= (statement.fence, statement.seq):
            # A late copy of a look that found nothing, and was answered so.
            return state, answer._replace(got=False), ""
        steps, broken = self._upsert(state.steps, at, FINAL, statement.fence, statement.seq)
        return state._replace(steps=steps, message=2), answer, broken

    def _upsert(
        self, steps: tuple[Step, ...], at: int, status: int, fence: int, seq: int
    ) -> tuple[tuple[Step, ...], str]:
        row = steps[at]
        if self.on("R3") and (row.status == FINAL or (row.fence, row.seq) >= (fence, seq)):
            return steps, ""
        broken = f"step {at} was finished and is open again" if row.status == FINAL and status != FINAL else ""
        return put(steps, at, Step(status, fence, seq)), broken

    def _end(self, run: Run, statement: Statement) -> tuple[Run, str]:
        broken = ""
        match statement.ending:
            case "succeed":
                if run.cancel:
                    if self.on("R9"):
                        return run, ""
                    broken = "the run succeeds although a cancel was accepted"
                status = SUCCEEDED
            case "fail":
                if run.cancel:
                    return run, ""
                status, run = FAILED, run._replace(owes=True)
                if run.undo == PROMISED and self.on("R19"):
                    status, run = ENQUEUED, run._replace(undo=OF_FAILED, suspended=False)
            case "cancel":
                status = self.cancelled(run)
            case "park":
                status = WAITING if run.wake == statement.seen or not self.on("R7") else ENQUEUED
                status = self.cancelled(run) if run.cancel and self.on("R7") else status
            case _:
                status = self.cancelled(run) if run.cancel else ENQUEUED
        return self.disowned(run, status), broken

    def cancelled(self, run: Run) -> str:
        """What a run becomes that has stopped for its cancel: it ends, or it is to be undone."""
        undone = run.undo == ASKED and (run.compensates or not self.on("R20"))
        return ENQUEUED if undone else CANCELLED

    def moved(self, run: Run, worker: Worker) -> Run:
        """The run after it was taken from a worker that has ended."""
        counts = worker.state == DEAD or not self.on("R12")
        return self.disowned(run, self.cancelled(run) if run.cancel else ENQUEUED, recoveries=int(counts))

    def woken(self, run: Run) -> Run:
        """The run after somebody has told it that something is there."""
        if run.status != WAITING:
            return run
        return self.disowned(run, ENQUEUED)

    def told(self, state: State) -> State:
        """Who waits for the other run's end is woken, and the wait is over."""
        if not state.wait:
            return state
        return state._replace(run=self.woken(state.run._replace(wake=state.run.wake + 1)), wait=False)

    def asked(self, run: Run, request: str) -> Run:
        """The run after a request from outside."""
        deaf = run.undo >= ASKED and self.on("R21")
        if request in ("suspend", "resume"):
            return run if deaf else run._replace(suspended=request == "suspend")
        if request == "remove":
            run = run._replace(cancel=True, compensates=False, owes=False)
        elif deaf:
            return run
        else:
            run = undoing.asked(run) if request == "compensate" else run._replace(cancel=True)
        if run.status in (ENQUEUED, WAITING) and self.on("R8"):
            return self.disowned(run, self.cancelled(run))
        return run


def put(items: tuple, at: int, item: object) -> tuple:  # type: ignore[type-arg]
    """The same but for one item."""
    return (*items[:at], item, *items[at + 1 :])


def miscounted(run: Run, state: State) -> str:
    """What is broken when a recovery was counted."""
    return "a recovery is counted and no worker has died" if run.recoveries > state.deaths else ""
