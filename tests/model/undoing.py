"""Undoing in the protocol's model: what is promised, when a run is to be undone, and what must be so at its end.

The program has "undo" for a step that another one undoes. That other one is a step, too: its row and its body stand
behind those of the program, in the order of the steps that they undo.
"""

from __future__ import annotations

from tests.model.state import (
    ASKED,
    CANCELLED,
    ENDED,
    FAILED,
    FINAL,
    NO_UNDO,
    NONE,
    OF_CANCELLED,
    OF_FAILED,
    PROMISED,
    Answer,
    Run,
    State,
)

AGAIN_AND_AGAIN = "the run is claimed again and again, and never ends"
HALF = "the run ends and what it has done is not undone"

MANY = 24
"""A fence that no run comes to that is on its way to its end."""

Program = tuple[str, ...]


def undoable(program: Program) -> tuple[int, ...]:
    """Positions of steps that can be undone."""
    return tuple(at for at, kind in enumerate(program) if kind == "undo")


def undoes(program: Program, at: int) -> int:
    """Which row is that of the step that undoes the one at this position."""
    return len(program) + undoable(program).index(at)


def promised(state: State, run: Run, at: int) -> State:
    """The statement `undo_promise`, by the owner."""
    if run.cancel:
        return state
    marked = run._replace(undo=PROMISED) if run.undo == NO_UNDO else run
    return state._replace(run=marked, promises=state.promises | {at})


def begun(program: Program, state: State, run: Run, answer: Answer) -> tuple[State, Answer]:
    """The statement `undo_begin`, by the owner: what is undone is written, once."""
    failed = run.undo == OF_FAILED
    wanted = not run.record and (run.compensates if run.undo == ASKED else failed and not run.cancel)
    cancel = run.cancel and not run.compensates
    if wanted:
        done = [at for at in state.promises if state.steps[at].status == FINAL]
        done.sort(key=lambda at: (state.steps[at].fence, state.steps[at].seq), reverse=True)
        run = run._replace(record=tuple(done), compensates=False, suspended=False)
        if done and not failed:
            run = run._replace(undo=OF_CANCELLED, cancel=False)
    path = tuple(undoes(program, at) for at in run.record)
    left = tuple(at for at in path if state.steps[at].status != FINAL)
    return state._replace(run=run), answer._replace(cancel=cancel, suspended=False, path=left, failed=failed)


def broken_by(program: Program, before: State, after: State) -> str:
    """What an event has broken, whatever it was."""
    run = after.run
    if run.fence >= MANY:
        return AGAIN_AND_AGAIN
    if run.status in (FAILED, CANCELLED) and before.run.status not in ENDED and run.owes:
        for at in undoable(program):
            if after.steps[at].status == FINAL and after.steps[undoes(program, at)].status != FINAL:
                return HALF
    return ""


def body_violation(program: Program, state: State, at: int) -> str:
    """What is broken when the body of this step begins."""
    rows = {undoes(program, each): each for each in undoable(program)}
    if at not in rows:
        gone = any(state.steps[row].status != NONE for row in rows)
        return f"step {at} begins in a run that is undone" if gone else ""
    if state.steps[rows[at]].status != FINAL:
        return f"step {rows[at]} has not succeeded and is undone"
    later = [row for row, each in rows.items() if each > rows[at] and state.steps[each].status == FINAL]
    if any(state.steps[row].status != FINAL for row in later):
        return f"step {rows[at]} is undone before one that came after it"
    return ""


def asked(run: Run) -> Run:
    """The row with a cancel that compensates, while somebody has it or not; its status is left to the caller."""
    if run.cancel or run.undo >= ASKED:
        return run
    undo = ASKED if run.undo == PROMISED else run.undo
    return run._replace(cancel=True, compensates=True, undo=undo, owes=True)
