"""What the engine asks of whoever makes steps durable: the worker's journal, or a test's memory.

One `StepLog` belongs to one claim of one run. It is the seam that keeps invariant 1 (a body starts only after its
row says running and everything it can see is committed) and invariant 3 (nothing is written once the fence moved).
"""

from __future__ import annotations

from typing import Protocol

from perdure.model.rows import OwnedFlags, StepWrite


class StepLog(Protocol):
    """Where the steps of one claim are written, in the order of `StepWrite.seq`."""

    async def start(self, write: StepWrite) -> OwnedFlags:
        """Write a step as running. Durable on return, with every earlier write of the run.

        Raises `OwnershipLost` when the run has another owner. A start is refused, and nothing of it written, when
        the run is cancelled: `OwnedFlags.cancel_mode` says so. Any other error means that this claim cannot go on:
        a `PerdureError` that is not retryable fails the run, everything else gives it back to the queue.
        The caller may be cancelled while it waits: the write then happened or not, and no body is started.
        """
        ...

    def record(self, write: StepWrite) -> None:
        """Queue the outcome of an attempt. Durable with the next start or the ending, or alone a moment later."""
        ...

    async def flush(self) -> None:
        """Return when everything that was recorded so far is durable: what is then written of this run elsewhere comes
        after it (rule R14). Raises as `start` does."""
        ...

    def admitted(self) -> bool:
        """Whether this process still holds the run by its own clock (the local lease), asked before each body."""
        ...
