"""What those meet who say what schedules there are."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class NonExistentSchedule(PerdureError):
    """There is no schedule of this name in the namespace."""

    code = "PRD-536"


class ConflictingSchedule(PerdureError):
    """The name belongs to another schedule, or to one of another owner."""

    code = "PRD-537"
