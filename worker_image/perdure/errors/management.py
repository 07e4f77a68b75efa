"""What those meet who take up, rewind or remove runs, and those whose run is taken up meanwhile."""

from __future__ import annotations

from perdure.errors.store import SystemDatabaseError


class WorkflowNotRewindable(SystemDatabaseError):
    """A rewind named a run that has not ended."""

    code = "PRD-528"


class WorkflowConflict(SystemDatabaseError):
    """The run was taken over (resumed, rewound or recovered) while this execution of it went on.

    Nothing that this one does counts any more; its outcome is that of whoever has the run now.
    """

    code = "PRD-529"
