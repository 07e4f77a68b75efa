"""The instances that are explored, and what comes of each rule being absent (a table of it: docs/protocol.md)."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.explore import STUCK
from tests.model.protocol import Protocol
from tests.model.undoing import AGAIN_AND_AGAIN, HALF

STEPS = ("step", "step")
FOREIGN = "a write by somebody who does not own the run any more"

CANCEL = frozenset({"cancel"})
STOP = frozenset({"stop"})
SUSPEND_AND_CANCEL = frozenset({"suspend", "cancel"})
SUSPEND_AND_RESUME = frozenset({"suspend", "resume"})
COMPENSATE = frozenset({"compensate"})
COMPENSATE_AND_CANCEL = frozenset({"compensate", "cancel"})
COMPENSATE_AND_REMOVE = frozenset({"compensate", "remove"})
COMPENSATE_AND_SUSPEND = frozenset({"compensate", "suspend"})


@dataclass(frozen=True)
class Broken:
    """Rules whose absence breaks a promise: the smallest instance that shows it, and what is broken."""

    off: tuple[str, ...]
    violation: str
    program: tuple[str, ...] = STEPS
    faults: int = 1
    requests: frozenset[str] = frozenset()
    sends: bool = True
    processes: int = 2
    fails: bool = False

    @property
    def protocol(self) -> Protocol:
        return Protocol(
            self.program,
            self.faults,
            self.requests,
            frozenset(self.off),
            processes=self.processes,
            sends=self.sends,
            fails=self.fails,
        )


BROKEN = (
    Broken(("R1", "R2"), FOREIGN),
    Broken(("R3",), "step 0 was finished and is open again"),
    Broken(("R4", "R5"), STUCK),
    Broken(("R6",), STUCK),
    Broken(("R7", "sweep"), STUCK, ("recv",), faults=0),
    Broken(("R7", "R16"), STUCK, ("recv",)),
    Broken(("sweep",), STUCK, ("recv",)),
    Broken(("R8",), STUCK, ("recv",), faults=0, requests=CANCEL, sends=False),
    Broken(("R9",), "the run succeeds although a cancel was accepted", ("step",), faults=0, requests=CANCEL),
    Broken(("R10",), STUCK, requests=SUSPEND_AND_CANCEL),
    Broken(("R11",), "step 0 runs again and nothing had gone wrong", faults=0, requests=STOP),
    Broken(("R12",), "a recovery is counted and no worker has died", faults=0),
    Broken(("R16",), STUCK, ("recv",), faults=2, processes=1),
    Broken(("R13",), "step 0 is finished and its body begins again"),
    Broken(("R17", "sweep"), STUCK, ("await",), faults=0),
    Broken(("R7",), STUCK, ("await",), faults=0),
    Broken(("sweep",), STUCK, ("await",)),
    Broken(("R18",), HALF, ("undo",), fails=True),
    Broken(("R19",), HALF, ("undo",), faults=0, fails=True),
    Broken(("R20",), AGAIN_AND_AGAIN, ("undo",), faults=0, requests=COMPENSATE),
    Broken(("R20",), AGAIN_AND_AGAIN, ("undo",), faults=0, requests=COMPENSATE_AND_REMOVE),
    Broken(("R21",), HALF, ("undo",), faults=0, requests=COMPENSATE_AND_CANCEL),
)

SAVED = (
    ("R1", "R2", STEPS),
    ("R2", "R1", STEPS),
    ("R4", "R5", STEPS),
    ("R5", "R4", STEPS),
    ("R7", "sweep", ("recv",)),
    ("R17", "sweep", ("await",)),
)
"""Rules whose absence alone breaks nothing, what saves them, and in which program that is seen. Each is one slip from
being needed."""

SMALL = {
    "kills, cuts, lost leases": Protocol(STEPS, faults=1),
    "two faults": Protocol(("step",), faults=2),
    "a message": Protocol(("recv", "step"), faults=1),
    "a message, a cancel": Protocol(("recv",), faults=1, requests=CANCEL),
    "the end of another run": Protocol(("await",), faults=1),
    "the end of another run, a cancel": Protocol(("await",), faults=0, requests=CANCEL),
    "suspended for good, a cancel": Protocol(("step",), faults=1, requests=SUSPEND_AND_CANCEL),
    "suspended and resumed": Protocol(("step",), faults=1, requests=SUSPEND_AND_RESUME),
    "a clean stop": Protocol(("step",), faults=1, requests=STOP),
    "undone, as it has failed": Protocol(("undo", "step", "undo"), faults=1, fails=True),
    "undone, as it has failed, a clean stop": Protocol(("undo",), faults=0, requests=STOP, fails=True),
    "undone for a cancel": Protocol(("undo",), faults=1, requests=COMPENSATE),
    "undone for a cancel, while it waits": Protocol(("undo", "recv"), faults=0, requests=COMPENSATE, sends=False),
    "undone for a cancel, and another cancel": Protocol(("undo",), faults=1, requests=COMPENSATE_AND_CANCEL),
    "undone for a cancel, and a removal": Protocol(("undo",), faults=1, requests=COMPENSATE_AND_REMOVE),
    "undone for a cancel, and suspended": Protocol(("undo",), faults=1, requests=COMPENSATE_AND_SUSPEND),
}
"""Explored whole in the tests: some seconds each."""

LARGE = {
    "two faults, two steps": Protocol(STEPS, faults=2),
    "a message between steps": Protocol(("step", "recv", "step"), faults=1),
    "a message between steps, a cancel": Protocol(("step", "recv", "step"), faults=1, requests=CANCEL),
    "a message between steps, suspended and resumed": Protocol(
        ("step", "recv", "step"), faults=1, requests=SUSPEND_AND_RESUME
    ),
    "a message between steps, a clean stop": Protocol(("step", "recv", "step"), faults=1, requests=STOP),
    "a message, two faults": Protocol(("recv",), faults=2),
    "the end of another run between steps": Protocol(("step", "await", "step"), faults=1),
    "undone, as it has failed, a clean stop and a fault": Protocol(("undo",), faults=1, requests=STOP, fails=True),
    "undone, as it has failed, two faults": Protocol(("undo", "undo"), faults=2, fails=True),
    "undone for a cancel after it has waited": Protocol(("undo", "recv", "undo"), faults=1, requests=COMPENSATE),
    "the end of another run between steps, a cancel": Protocol(("step", "await", "step"), faults=1, requests=CANCEL),
}
"""Explored whole by `make model`: minutes, and some gigabytes of memory."""
