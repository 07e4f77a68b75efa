"""What a worker remembers of its queues' limits: it asks no queue in vain, and none too late."""

from perdure.model.rows import ClaimedRun
from perdure.store.claims import Taken
from perdure.worker.limits import POLL_SHARE, RATE_PAUSE, Limits
from perdure.worker.machine import RunKey

POLL = 1.0
HOLD = POLL * POLL_SHARE


def taken(*runs: str, room: int | None = None, again_in: float | None = None, ended: int = 0) -> Taken:
    claimed = [ClaimedRun(run, 1, "ns", None, "x", "[]", None, 0, None, 0, 0, None, False, None) for run in runs]
    return Taken(claimed, {}, {}, ended, room, again_in)


def test_a_queue_without_limits_is_always_open() -> None:
    limits = Limits(POLL)
    limits.claimed("q", taken("a"), 4, 10.0)
    assert limits.open("q", 10.0)
    assert not limits.limited("q")
    assert limits.left(RunKey("a", 1)) is None


def test_a_queue_at_its_limit_is_asked_again_when_a_run_of_it_leaves_or_after_a_poll() -> None:
    limits = Limits(POLL)
    limits.claimed("q", taken("a", "b", room=2), 4, 10.0)
    limits.claimed("other", taken("c"), 4, 10.0)
    assert limits.limited("q")
    assert not limits.open("q", 10.1)
    assert limits.open("q", 10.0 + HOLD)
    assert limits.left(RunKey("c", 1)) is None
    assert limits.left(RunKey("z", 1)) is None
    assert not limits.open("q", 10.1)
    assert limits.left(RunKey("a", 1)) == "q"
    assert limits.open("q", 10.1)


def test_a_claim_that_got_all_it_asked_for_leaves_the_queue_open() -> None:
    limits = Limits(POLL)
    limits.claimed("q", taken("a", room=1), 1, 10.0)
    assert limits.open("q", 10.0)
    assert limits.left(RunKey("a", 1)) is None


def test_a_queue_with_room_that_has_no_more_runs_stays_open() -> None:
    limits = Limits(POLL)
    limits.claimed("q", taken("a", room=4), 4, 10.0)
    assert limits.open("q", 10.0)


def test_a_partition_at_its_limit_closes_nothing_and_its_next_run_is_looked_for_when_one_leaves() -> None:
    limits = Limits(POLL)
    limits.claimed("q", taken("a", room=4), 4, 10.0)
    assert limits.left(RunKey("a", 1)) == "q"


def test_a_paused_queue_is_asked_again_after_a_poll() -> None:
    limits = Limits(POLL)
    limits.claimed("q", taken(room=0), 4, 10.0)
    assert not limits.open("q", 10.0 + HOLD - 0.01)
    assert limits.open("q", 10.0 + HOLD)
    assert limits.opens_in(10.0) is None


def test_a_rate_opens_the_queue_when_it_lets_another_begin() -> None:
    limits = Limits(POLL)
    limits.claimed("q", taken("a", room=4, again_in=0.3), 4, 10.0)
    assert not limits.open("q", 10.2)
    assert limits.opens_in(10.1) is not None
    assert limits.left(RunKey("a", 1)) is None, "a run that leaves makes no token"
    assert not limits.open("q", 10.2)
    assert limits.open("q", 10.3001)
    assert limits.opens_in(10.4) is None


def test_a_slow_rate_is_asked_at_every_poll_and_a_fast_one_not_at_every_token() -> None:
    limits = Limits(POLL)
    limits.claimed("slow", taken(room=4, again_in=3600.0), 4, 10.0)
    limits.claimed("fast", taken(room=4, again_in=0.001), 4, 10.0)
    assert limits.open("slow", 10.0 + HOLD)
    assert not limits.open("fast", 10.0 + RATE_PAUSE / 2)
    assert limits.open("fast", 10.0001 + RATE_PAUSE)


def test_limits_that_are_taken_off_are_forgotten() -> None:
    limits = Limits(POLL)
    limits.claimed("q", taken(room=0), 4, 10.0)
    limits.claimed("q", taken("a"), 4, 11.0)
    assert limits.open("q", 11.0)
    assert not limits.limited("q")
