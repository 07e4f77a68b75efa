"""What must come of one run, as a value: made by `model`, compared by `check`. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.model.states import RunStatus, StepStatus

from tests.faults.programs import Program

STEP_NAMES = {
    "step": "f.step",
    "sync": "f.sync",
    "retried": "f.retried",
    "parked": "f.parked",
    "caught": "f.failing",
    "fail": "f.failing",
    "attempts": "f.attempted",
    "sleep": "perdure.sleep",
    "transaction": "f.transaction",
    "start": "perdure.start",
    "debounce": "perdure.debounce",
    "fork": "perdure.fork",
    "resume": "perdure.resume",
    "rewind": "perdure.rewind",
    "delete": "perdure.delete",
    "cancel": "perdure.cancel",
    "result": "perdure.result",
    "select": "perdure.select_workflow",
    "race": "perdure.select",
    "now": "perdure.now",
    "patch": "perdure.patch",
    "undo": "perdure.undo",
    "back": "f.back",
    "noted": "f.noted",
    "told": "f.tells",
    "send": "perdure.send",
    "recv": "perdure.recv",
    "set": "perdure.set_event",
    "get": "perdure.get_event",
    "write": "perdure.write_stream",
    "close": "perdure.close_stream",
    "read": "perdure.read_stream",
    "blocking": "f.blocking",
    "bad": "f.bad",
    "poison": "f.poison",
    "keyed": "f.keyed",
    "stubborn": "f.stubborn",
}
"""Name under which the step of a node is registered."""


@dataclass(frozen=True)
class ExpectedStep:
    """A row of `workflow_steps`. `status` None: it begins and is never finished. `bodies`: attempts whose body must
    have begun, by their number; `repeats`: how often each at least."""

    name: str
    status: StepStatus | None
    output: str | None
    failures: int
    bodies: tuple[int, ...]
    repeats: int = 1
    first: ExpectedStep | None = None
    """What is recorded there before a later attempt of the run's body opens it again."""
    may_lack: bool = False
    """Whether it may have been over before anything was recorded of it."""
    any_output: bool = False
    """Whether nobody knows its output beforehand."""
    needs: int = 0
    """Once anything is recorded of this step, so many steps from the first on have ended and are recorded."""


@dataclass
class Expected:
    """How the run ends: CANCELLED where it does not by itself. `code` is that of its error, empty where it has none."""

    status: RunStatus = RunStatus.SUCCEEDED
    output: str | None = None
    code: str = ""
    error: str = ""
    run_attempts: int = 0
    """How often its body must have failed."""
    steps: list[ExpectedStep] = field(default_factory=list)
    undone: bool = False
    """Whether it is cancelled once it has done all of this, so that all of it must be there."""
    children: dict[str, Program] = field(default_factory=dict)
    """What the runs that it starts do, by their id."""
    removed: set[str] = field(default_factory=set)
    """Those of them that it removes."""


class Ends(Exception):
    """The body raises here and nothing catches it."""

    def __init__(self, status: RunStatus, code: str = "", error: str = "") -> None:
        super().__init__(status, code)
        self.status = status
        self.code = code
        self.error = error
