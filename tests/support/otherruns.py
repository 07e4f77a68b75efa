"""Runs that somebody else has started, in the memory of a test of the engine."""

from perdure.model.calls import RunOutcome
from perdure.model.outcome import Parked
from perdure.model.states import RunStatus

from tests.support.memorylog import MemoryRun

RUNNING = RunOutcome(RunStatus.RUNNING, own=False)


def theirs(run: MemoryRun, *ids: str) -> MemoryRun:
    """Runs that somebody else has started and that go on."""
    run.world.outcomes.update(dict.fromkeys(ids, RUNNING))
    return run


def end(run: MemoryRun, run_id: str, output: str = "1", *, own: bool = False, **outcome: object) -> None:
    """This run has ended and has woken who waits."""
    fields = {"status": RunStatus.SUCCEEDED, "output": output, "own": own, **outcome}
    run.world.outcomes[run_id] = RunOutcome(**fields)  # type: ignore[arg-type]
    run.wake_seq += 1


def parked(ending: object) -> Parked:
    assert isinstance(ending, Parked), ending
    return ending
