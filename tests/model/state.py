"""The states of the protocol's model: one run, two processes, statements under way. Values only.

What is left out, and why that is no hole: payloads (a write is known by its fence and number), names and inputs,
several runs (they share nothing but the workers' rows), time (whatever may happen later may happen at any moment).
`epoch` and the counts at the end exist only in the model: they say what is true, not what the database knows.
"""

from __future__ import annotations

from typing import NamedTuple

ENQUEUED, RUNNING, WAITING, SUCCEEDED, CANCELLED = "enqueued", "running", "waiting", "succeeded", "cancelled"
FAILED = "failed"
ENDED = (SUCCEEDED, CANCELLED, FAILED)

NO_UNDO, PROMISED, ASKED, OF_FAILED, OF_CANCELLED = -1, 0, 1, 2, 3
"""How far a run is with undoing: nothing was promised; something was; a cancel asks for it; it undoes what it has done,
as it has failed, or as it is cancelled."""

LIVE, DRAINING, STOPPED, DEAD = "live", "draining", "stopped", "dead"

OFF, IDLE, SENT, ANSWERED, GAP, LOOK = "off", "idle", "sent", "answered", "gap", "look"
"""A process: not there; holds nothing; its statement is under way; the answer is under way; a start was acknowledged
and the body's first line has not run; it is about to look whether another run has ended."""

NONE, STARTED, FINAL = 0, 1, 2
"""A step's row."""


class Run(NamedTuple):
    """The run's row."""

    status: str = ENQUEUED
    owner: int = -1
    fence: int = 0
    wake: int = 0
    cancel: bool = False
    suspended: bool = False
    recoveries: int = 0
    epoch: int = 0
    """Ownerships that began or ended so far."""
    compensates: bool = False
    """The mode of the cancel."""
    undo: int = NO_UNDO
    record: tuple[int, ...] = ()
    """Which steps are undone, in this order."""
    owes: bool = False
    """Only in the model: it has failed, or a cancel was accepted that says so: what it has done is to be undone."""


class Step(NamedTuple):
    """A step's row."""

    status: int = NONE
    fence: int = -1
    seq: int = 0


class Worker(NamedTuple):
    """A row of `workers`. `out`: its lease has run out. `forgotten`: nobody looks for its runs any more."""

    process: int
    state: str = LIVE
    out: bool = False
    forgotten: bool = False


class Statement(NamedTuple):
    """What a process sends. `finish` and `start` are positions in the program, -1 for none."""

    kind: str
    worker: int
    fence: int = 0
    epoch: int = 0
    seq: int = 0
    finish: int = -1
    start: int = -1
    ending: str = ""
    seen: int = 0


class Answer(NamedTuple):
    """What comes back. `got`: the claim took the run, the run is owned, the message was there. `ended`: the ending
    was accepted."""

    got: bool
    fence: int = 0
    epoch: int = 0
    position: int = 0
    wake: int = 0
    cancel: bool = False
    suspended: bool = False
    ended: bool = False
    undoes: bool = False
    path: tuple[int, ...] = ()
    failed: bool = False


class Process(NamedTuple):
    """A process: which row of `workers` is its own, the claim it holds, what it waits for."""

    worker: int = -1
    at: str = OFF
    fence: int = 0
    epoch: int = 0
    seq: int = 0
    position: int = 0
    finished: int = -1
    """The step whose body has ended and whose finish is not acknowledged."""
    seen: int = 0
    stopping: bool = False
    path: tuple[int, ...] | None = None
    """The steps that it calls to undo others, in place of the program; `position` is in here then."""
    failed: bool = False
    """What it undoes has failed."""
    promised: int = -1
    """The last position of which it is written who undoes it."""
    statement: Statement | None = None
    answer: Answer | None = None


class State(NamedTuple):
    """Everything. `late` are statements whose sender does not wait for them any more."""

    run: Run
    steps: tuple[Step, ...]
    workers: tuple[Worker, ...]
    processes: tuple[Process, ...]
    late: tuple[Statement, ...] = ()
    message: int = 0
    """0: not sent; 1: in the inbox; 2: received. Of another run that is waited for: 0: it goes on; 1: it has ended."""
    poke: bool = False
    """The sender has still to wake the receiver; whoever ended the other run, who waits for that."""
    wait: bool = False
    """It is written that the run waits for the other's end."""
    faults: int = 0
    deaths: int = 0
    bodies: tuple[int, ...] = ()
    asked: frozenset[str] = frozenset()
    """Requests from outside that were made."""
    promises: frozenset[int] = frozenset()
    """Positions of which it is written who undoes them."""


OWN, FAULT, REQUEST = "own", "fault", "request"


class Event(NamedTuple):
    """One possible event. `violation` says what it broke, empty if nothing."""

    label: str
    kind: str
    state: State
    violation: str = ""


def with_process(state: State, number: int, process: Process) -> State:
    """The state in which one process is another."""
    return state._replace(processes=(*state.processes[:number], process, *state.processes[number + 1 :]))


def in_order(statements: tuple[Statement, ...], *more: Statement) -> tuple[Statement, ...]:
    """In one order, whichever came first."""
    return tuple(sorted({*statements, *more}))


def orphan(state: State, process: Process) -> State:
    """Nobody waits any more for what this process has under way."""
    if process.at != SENT or process.statement is None:
        return state
    return state._replace(late=in_order(state.late, process.statement))


def said(statement: Statement) -> str:
    """A statement in a trace."""
    parts = [f"finish of {statement.finish}"] if statement.finish >= 0 else []
    if statement.start >= 0 and statement.kind == "journal":
        parts.append(f"start of {statement.start}")
    parts += [statement.ending] if statement.ending else []
    return f"{' and '.join(parts) or statement.kind} (fence {statement.fence})"
