"""What the engine meets in a body: a replay that does not match, a durable call where none can be made."""

from __future__ import annotations

from perdure.errors.base import PerdureError
from perdure.errors.store import SystemDatabaseError


class UnexpectedStep(SystemDatabaseError):
    """A replay reached another step than the one recorded at this index. The run is retried, then parked."""

    code = "PRD-301"


class InputMismatch(PerdureError):
    """A replay called the recorded step with another input. The run is retried, then parked."""

    code = "PRD-302"


class StepBuiltElsewhere(PerdureError):
    """A step call was awaited in another run, on the other side of a step's boundary, or in another event loop."""

    code = "PRD-303"


class UnknownWorkflow(PerdureError):
    """No workflow of this name is registered in this process."""

    code = "PRD-304"


class UnknownStep(PerdureError):
    """No step of this name is registered in this process (a declared `task` names it)."""

    code = "PRD-305"


class NotInWorkflow(PerdureError):
    """A durable call (`perdure.sleep`, `send`, `recv` …) was made outside the body of a run."""

    code = "PRD-311"


class InsideStep(PerdureError):
    """A call that is refused inside a step: a step is a leaf, nothing in it is recorded."""

    code = "PRD-312"


class InsideWorkflow(PerdureError):
    """A call that is refused in the body of a run: nothing of it is recorded there, so a replay would do it again."""

    code = "PRD-313"


class PatchNondeterminism(PerdureError):
    """Another durable call took the position of one that has to be awaited on its own."""

    code = "PRD-314"


class HistoryUnreadable(PerdureError):
    """A file is no history of a run that this release can read."""

    code = "PRD-317"


class ReplayDiffers(PerdureError):
    """The present code does not do what a recorded history says. Nothing of it was run."""

    code = "PRD-318"
