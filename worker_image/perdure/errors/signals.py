"""Control signals: they end the body of a run and are no outcome of it."""

from __future__ import annotations


class ControlSignal(BaseException):
    """Ends a body without being its outcome. Let it pass; `finally` blocks run, durable calls in them do not.

    `reason` is a sentence. A signal that is not `immediate` lets steps in progress finish and be recorded.
    """

    def __init__(self, reason: str = "", *, immediate: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.immediate = immediate


class OwnershipLost(ControlSignal):
    """The run's fence has moved on: another worker has it, or it was changed from outside."""


class CancelRequested(ControlSignal):
    """The run was cancelled; the body ends at its next durable call, or where it is if the cancel is immediate."""

    def __init__(self, reason: str = "", *, immediate: bool = False) -> None:
        super().__init__(reason, immediate=immediate)


class ReleaseRequested(ControlSignal):
    """The run goes back to the queue: the worker drains, or the run was suspended."""

    def __init__(self, reason: str = "", *, immediate: bool = False) -> None:
        super().__init__(reason, immediate=immediate)


class SlotGivenBack(ControlSignal):
    """The run waits for longer than it is worth keeping its slot; a later claim continues it."""


class BodyStopped(ControlSignal):
    """The engine cannot go on with this body: its replay does not match, or a write of it was refused."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason, immediate=False)
