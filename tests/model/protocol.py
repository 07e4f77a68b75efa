"""What can happen next in the protocol: claim, lease, journal, park, wake, settle, and everything that goes wrong.

`Protocol.steps` gives every event that is possible in a state, with the state after it. Rules can be switched off
one by one; what each means is in docs/protocol.md. Events are of three kinds: the protocol's own, faults (of which a
bounded number may happen) and requests from outside. A violation is found where an event does what must not be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.database import RULES, Database, miscounted, put
from tests.model.state import (
    ANSWERED,
    DEAD,
    DRAINING,
    ENDED,
    ENQUEUED,
    FAULT,
    FINAL,
    GAP,
    IDLE,
    LIVE,
    LOOK,
    OFF,
    OWN,
    REQUEST,
    RUNNING,
    SENT,
    STOPPED,
    WAITING,
    Event,
    Process,
    Run,
    State,
    Statement,
    Step,
    Worker,
    in_order,
    orphan,
    said,
    with_process,
)
from tests.model.undoing import body_violation, broken_by, undoable


@dataclass(frozen=True)
class Protocol:
    """An instance of the model. `program` is made of "step", of "undo" (a step that another one undoes), of "recv" or
    "await" (the end of a run that somebody else has started); `requests` of "cancel", "compensate" (a cancel that
    undoes), "remove", "suspend", "resume" and "stop" (SIGTERM to a process); `off` names the rules that are switched
    off."""

    program: tuple[str, ...] = ("step", "recv", "step")
    faults: int = 1
    requests: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()
    processes: int = 2
    sends: bool = True
    """Whether what the program waits for ever comes."""
    fails: bool = False
    """How the program ends."""
    database: Database = field(init=False, default=Database(frozenset()))

    def __post_init__(self) -> None:
        assert self.off <= set(RULES), self.off
        object.__setattr__(self, "database", Database(self.off, self.program))

    def on(self, rule: str) -> bool:
        """Whether the rule holds."""
        return rule not in self.off

    @property
    def first(self) -> State:
        """Two processes that have registered, and a run that nobody has taken."""
        rows = (*self.program, *undoable(self.program))
        return State(
            run=Run(),
            steps=tuple(Step() for _ in rows),
            workers=tuple(Worker(number) for number in range(self.processes)),
            processes=tuple(Process(worker=number, at=IDLE) for number in range(self.processes)),
            bodies=tuple(0 for _ in rows),
        )

    def ended(self, state: State) -> bool:
        """Whether the run may rest here: it has ended, or it waits for what never comes and nobody wants its end."""
        run = state.run
        if run.cancel:
            return run.status in ENDED
        for_good = run.suspended and "resume" not in self.requests and run.status == ENQUEUED
        return run.status in ENDED or for_good or (run.status == WAITING and not self.sends)

    # -- events

    def steps(self, state: State) -> Iterator[Event]:
        """Everything that can happen now."""
        for event in self._events(state):
            broken = event.violation or broken_by(self.program, state, event.state)
            yield event._replace(violation=broken) if broken else event

    def _events(self, state: State) -> Iterator[Event]:
        alike = len({process._replace(worker=0) for process in state.processes}) == 1 and state.run.epoch == 0
        for number, process in enumerate(state.processes):
            if number and alike and not state.faults and not state.asked:
                # The processes are the same so far: what the second does first, the first may do.
                break
            yield from self._process(state, number, process)
        for number, statement in enumerate(state.late):
            rest = state._replace(late=state.late[:number] + state.late[number + 1 :])
            after, _, violation = self.database.execute(rest, statement)
            yield Event(f"late: {said(statement)}", OWN, after, violation)
        for number, worker in enumerate(state.workers):
            yield from self._lease(state, number, worker)
        yield from self._outside(state)

    def _process(self, state: State, number: int, process: Process) -> Iterator[Event]:
        name = "AB"[number]
        match process.at:
            case "off":
                yield self._register(state, number, f"{name} starts anew")
                return
            case "idle":
                if process.stopping:
                    yield self._stopped(state, number, process, name)
                elif state.run.status == ENQUEUED and not (self.on("R13") and state.workers[process.worker].out):
                    claim = Statement("claim", process.worker)
                    sent = process._replace(at=SENT, statement=claim)
                    yield Event(f"{name} sends a claim", OWN, with_process(state, number, sent))
            case "sent":
                assert process.statement is not None
                after, answer, violation = self.database.execute(state, process.statement)
                answered = process._replace(at=ANSWERED, answer=answer)
                yield Event(
                    f"{name}'s {said(process.statement)} commits", OWN, with_process(after, number, answered), violation
                )
            case "answered":
                yield Event(f"{name} hears the answer", OWN, self._heard(state, number, process))
            case "gap":
                yield self._body(state, number, process, name)
            case "look":
                yield Event(f"{name} looks for the other's end", OWN, self._look(state, number, process))
        yield from self._beat(state, number, process, name)
        if process.at in (SENT, ANSWERED) and state.faults < self.faults:
            yield self._cut(state, number, process, name)
        if state.faults < self.faults:
            killed = orphan(state, process)._replace(faults=state.faults + 1)
            yield Event(f"{name} is killed", FAULT, with_process(killed, number, Process(worker=process.worker)))
        if "stop" in self.requests and "stop" not in state.asked and not process.stopping:
            told = with_process(state, number, process._replace(stopping=True))
            yield Event(f"{name} is told to stop", REQUEST, told._replace(asked=state.asked | {"stop"}))

    # -- what a process does

    def _heard(self, state: State, number: int, process: Process) -> State:
        """The answer arrives; the process decides what it does next and sends that."""
        answer, statement = process.answer, process.statement
        assert answer is not None and statement is not None
        idle = Process(worker=process.worker, at=IDLE, stopping=process.stopping)
        process = process._replace(answer=None, statement=None)
        if statement.kind == "claim":
            if not answer.got:
                return with_process(state, number, idle)
            process = process._replace(
                fence=answer.fence,
                epoch=answer.epoch,
                seq=0,
                position=answer.position,
                promised=answer.position - 1,
                finished=-1,
                seen=answer.wake,
            )
            if answer.undoes:
                return self._send(state, number, process, kind="undo")
        elif not answer.got and statement.kind != "recv":
            return with_process(state, number, idle)
        elif statement.kind == "undo":
            process = process._replace(path=answer.path, position=0, failed=answer.failed)
        elif statement.kind == "promise":
            process = process._replace(promised=statement.start)
        elif statement.kind == "listen":
            if not (answer.cancel or answer.suspended or process.stopping):
                return self._after_listening(state, number, process)
        elif statement.kind == "recv":
            if not answer.fence:  # not owned
                return with_process(state, number, idle)
            process = process._replace(seen=answer.wake)
            if not answer.got:
                if not (answer.cancel or answer.suspended or process.stopping):
                    return self._send(state, number, process, ending="park")
                return self._next(state, number, process, cancel=answer.cancel, suspended=answer.suspended)
            process = process._replace(position=process.position + 1)
        elif statement.ending:
            if answer.ended:
                return with_process(state, number, idle)
            return self._send(state, number, process, ending="cancel")
        else:
            process = process._replace(finished=-1)
            if statement.start >= 0 and not answer.cancel and not answer.suspended:
                return with_process(state, number, process._replace(at=GAP))
        return self._next(state, number, process, cancel=answer.cancel, suspended=answer.suspended)

    def _next(self, state: State, number: int, process: Process, *, cancel: bool, suspended: bool) -> State:
        """The body is at its next durable call."""
        if cancel:
            return self._send(state, number, process, ending="cancel")
        if suspended or process.stopping:
            if process.finished >= 0 and not self.on("R11"):
                # The finish goes its own way and is overtaken.
                overtaken = Statement(
                    "journal", process.worker, process.fence, process.epoch, process.seq + 1, process.finished
                )
                state = state._replace(late=in_order(state.late, overtaken))
                process = process._replace(finished=-1, seq=process.seq + 1)
            return self._send(state, number, process, ending="release")
        if process.path is not None:
            if process.position == len(process.path):
                return self._send(state, number, process, ending="fail" if process.failed else "cancel")
            return self._send(state, number, process, start=process.path[process.position])
        # Without the rule it is said who undoes a step when that is finished.
        at = process.position - (not self.on("R18"))
        if (
            0 <= at < len(self.program)
            and self.program[at] == "undo"
            and process.promised < at
            and (process.finished < 0 or self.on("R18"))
        ):
            if process.finished >= 0:
                return self._send(state, number, process)
            return self._send(state, number, process, kind="promise", start=at)
        if process.position == len(self.program):
            return self._send(state, number, process, ending="fail" if self.fails else "succeed")
        if self.program[process.position] in ("step", "undo"):
            return self._send(state, number, process, start=process.position)
        if process.finished >= 0:
            return self._send(state, number, process)
        if self.program[process.position] == "recv":
            return self._send(state, number, process, kind="recv")
        if self.on("R17"):
            return self._send(state, number, process, kind="listen")
        return with_process(state, number, process._replace(at=LOOK))

    def _look(self, state: State, number: int, process: Process) -> State:
        """Whether the other run has ended, and the own count of wakes, in one snapshot."""
        process = process._replace(seen=state.run.wake)
        if state.message == 1:
            ended = process._replace(finished=process.position, position=process.position + 1)
            return self._next(state, number, ended, cancel=False, suspended=False)
        if self.on("R17"):
            return self._send(state, number, process, ending="park")
        return self._send(state, number, process, kind="listen")

    def _after_listening(self, state: State, number: int, process: Process) -> State:
        """The wait is written: look after that; without the rule it was done before."""
        if self.on("R17"):
            return with_process(state, number, process._replace(at=LOOK))
        return self._send(state, number, process, ending="park")

    def _send(
        self, state: State, number: int, process: Process, *, kind: str = "journal", start: int = -1, ending: str = ""
    ) -> State:
        statement = Statement(
            kind,
            process.worker,
            process.fence,
            process.epoch,
            process.seq + 1,
            finish=process.finished if kind != "listen" else -1,
            start=process.position if kind == "recv" else start,
            ending=ending,
            seen=process.seen,
        )
        return with_process(state, number, process._replace(at=SENT, seq=process.seq + 2, statement=statement))

    def _body(self, state: State, number: int, process: Process, name: str) -> Event:
        """Between the acknowledged start and the body's first line."""
        position = process.position if process.path is None else process.path[process.position]
        if self.on("R13") and state.workers[process.worker].out:
            idle = Process(worker=process.worker, at=IDLE, stopping=process.stopping)
            return Event(f"{name} has no lease and lets go", OWN, with_process(state, number, idle))
        broken = body_violation(self.program, state, position)
        if state.steps[position].status == FINAL:
            broken = f"step {position} is finished and its body begins again"
        bodies = put(state.bodies, position, state.bodies[position] + 1)
        if bodies[position] > 1 + state.faults:
            broken = broken or f"step {position} runs again and nothing had gone wrong"
        after = state._replace(bodies=bodies)
        ran = process._replace(finished=position, position=process.position + 1)
        return Event(
            f"{name} runs the body of step {position}",
            OWN,
            self._next(after, number, ran, cancel=False, suspended=False),
            broken,
        )

    def _stopped(self, state: State, number: int, process: Process, name: str) -> Event:
        worker = state.workers[process.worker]
        if worker.state in (LIVE, DRAINING):
            state = state._replace(workers=put(state.workers, process.worker, worker._replace(state=STOPPED)))
        return Event(f"{name} stops cleanly", OWN, with_process(state, number, Process(worker=process.worker)))

    def _register(self, state: State, number: int, label: str) -> Event:
        workers = (*state.workers, Worker(number))
        after = state._replace(workers=workers)
        return Event(label, OWN, with_process(after, number, Process(worker=len(workers) - 1, at=IDLE)))

    def _beat(self, state: State, number: int, process: Process, name: str) -> Iterator[Event]:
        worker = state.workers[process.worker]
        if worker.state in (DEAD, STOPPED):
            yield self._register(orphan(state, process), number, f"{name} hears that it is dead and registers anew")
            return
        held = state._replace(workers=put(state.workers, process.worker, worker._replace(out=False)))
        if worker.out:
            yield Event(f"{name} beats", OWN, held)
        run = state.run
        holds = process.at != IDLE and process.fence == run.fence
        asking = process.statement is not None and process.statement.kind == "claim"
        if self.on("R6") and run.status == RUNNING and run.owner == process.worker and not holds and not asking:
            given = self.database.disowned(run, ENQUEUED)
            yield Event(f"{name} beats and gives back what it does not know", OWN, held._replace(run=given))

    def _cut(self, state: State, number: int, process: Process, name: str) -> Event:
        """No answer: a claim is left to the beats, everything else is sent again as it was."""
        assert process.statement is not None
        after = orphan(state, process)._replace(faults=state.faults + 1)
        if process.statement.kind == "claim":
            left = Process(worker=process.worker, at=IDLE, stopping=process.stopping)
        else:
            left = process._replace(at=SENT, answer=None)
        return Event(f"{name}'s connection is cut", FAULT, with_process(after, number, left))

    # -- leases and recovery

    def _lease(self, state: State, number: int, worker: Worker) -> Iterator[Event]:
        name = f"worker {number}"
        if worker.state in (LIVE, DRAINING):
            if not worker.out:
                # Nobody beats for it any more: no further fault. Else its process is paused or cut off.
                gone = state.processes[worker.process].worker != number or state.processes[worker.process].at == OFF
                if gone or state.faults < self.faults:
                    after = state._replace(workers=put(state.workers, number, worker._replace(out=True)))
                    after = after if gone else after._replace(faults=state.faults + 1)
                    yield Event(f"the lease of {name} runs out", OWN if gone else FAULT, after)
            else:
                dead = put(state.workers, number, worker._replace(state=DEAD))
                yield Event(f"{name} is marked dead", OWN, state._replace(workers=dead, deaths=state.deaths + 1))
            return
        if worker.forgotten:
            return
        owns = state.run.status == RUNNING and state.run.owner == number
        if owns or not self.on("R5"):
            after = state
            violation = ""
            if owns:
                run = self.database.moved(state.run, worker)
                after, violation = state._replace(run=run), miscounted(run, state)
            if not self.on("R5"):
                after = after._replace(workers=put(state.workers, number, worker._replace(forgotten=True)))
            yield Event(f"the runs of {name} are moved", OWN, after, violation)

    # -- from outside

    def _outside(self, state: State) -> Iterator[Event]:
        run = state.run
        yield from self._messages(state) if "recv" in self.program else self._other(state)
        for request in sorted(self.requests - state.asked - {"stop"}):
            if run.status in ENDED or (request == "resume" and not run.suspended):
                continue
            kind = OWN if request == "resume" else REQUEST
            yield Event(
                request, kind, state._replace(run=self.database.asked(run, request), asked=state.asked | {request})
            )

    def _messages(self, state: State) -> Iterator[Event]:
        """What the program receives."""
        run = state.run
        if self.sends and state.message == 0:
            yield Event("a message is written", OWN, state._replace(message=1, poke=True))
        if state.poke:
            woken = self.database.woken(run._replace(wake=run.wake + 1))
            yield Event("its receiver is woken", OWN, state._replace(run=woken, poke=False))
            if state.faults < self.faults:
                yield Event("its sender dies", FAULT, state._replace(poke=False, faults=state.faults + 1))
        if self.on("sweep") and run.status == WAITING and state.message == 1:
            yield Event("the sweep wakes who has a message", OWN, state._replace(run=self.database.woken(run)))

    def _other(self, state: State) -> Iterator[Event]:
        """The run that the program waits for: whoever ends it tells who has said that it waits."""
        if self.sends and "await" in self.program and state.message == 0:
            yield Event("the other run ends", OWN, state._replace(message=1, poke=True))
        if state.poke:
            yield Event("who waits for it is woken", OWN, self.database.told(state)._replace(poke=False))
            if state.faults < self.faults:
                yield Event("its worker dies", FAULT, state._replace(poke=False, faults=state.faults + 1))
        if self.on("sweep") and state.message == 1 and state.wait:
            yield Event("the sweep wakes who waits for it", OWN, self.database.told(state))
