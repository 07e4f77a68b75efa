"""The decisions of replay, as tables."""

import pytest
from perdure.engine.decide import Diverged, GiveUp, Raise, RetryIn, Return, Run, Wait, after_failure, decide
from perdure.engine.failures import NONE, Failures
from perdure.model.outcome import ErrorRecord
from perdure.model.retry import RetryPolicy
from perdure.model.rows import RecordedStep
from perdure.model.states import StepStatus

DOWN = ErrorRecord("OSError", "down")
ONCE = NONE.plus(DOWN)


def row(status: StepStatus, **changes) -> RecordedStep:
    fields = {
        "index": 3,
        "name": "charge",
        "status": status,
        "input": "[100]",
        "output": None,
        "error": None,
        "attempts": 0,
        "attempt_errors": None,
        "wake_at": None,
        "wake_in": None,
    }
    return RecordedStep(**{**fields, **changes})


FAILED_ONCE = {"attempts": 1, "attempt_errors": ONCE.to_json()}

DECISIONS = [
    ("nothing recorded", None, Run()),
    ("running, cut off", row(StepStatus.RUNNING), Run(NONE)),
    ("running again, cut off", row(StepStatus.RUNNING, **FAILED_ONCE), Run(ONCE)),
    ("succeeded", row(StepStatus.SUCCEEDED, output="7"), Return("7")),
    ("succeeded with nothing", row(StepStatus.SUCCEEDED), Return("null")),
    ("failed", row(StepStatus.FAILED, error=DOWN.to_json(), **FAILED_ONCE), Raise(DOWN, ONCE)),
    ("retrying, due", row(StepStatus.RETRYING, wake_in=-1.0, **FAILED_ONCE), Run(ONCE)),
    ("retrying, due now", row(StepStatus.RETRYING, wake_in=0.0, **FAILED_ONCE), Run(ONCE)),
    ("retrying, no time", row(StepStatus.RETRYING, **FAILED_ONCE), Run(ONCE)),
    ("retrying, not due", row(StepStatus.RETRYING, wake_in=9.5, **FAILED_ONCE), Wait(9.5, ONCE)),
    ("retrying, opened again", row(StepStatus.RETRYING, attempt_errors=ONCE.to_json()), Run(Failures(0, (DOWN,)))),
]


@pytest.mark.parametrize(
    ("recorded", "decision"), [case[1:] for case in DECISIONS], ids=[case[0] for case in DECISIONS]
)
def test_what_is_recorded_decides(recorded, decision):
    assert decide(recorded, "charge", "[100]", (100,)) == decision


@pytest.mark.parametrize("status", StepStatus)
def test_another_name_diverges_before_anything_else(status):
    decision = decide(row(status), "refund", "[1]", (1,))
    assert isinstance(decision, Diverged)
    assert decision.error.code == "PRD-301"
    assert f"step charge is recorded as {status.name.lower()}, but the code calls step refund" in decision.error.message
    assert "at index 3" in decision.error.message


@pytest.mark.parametrize("status", StepStatus)
def test_another_input_diverges(status):
    decision = decide(row(status), "charge", "[99]", (99,))
    assert isinstance(decision, Diverged)
    assert decision.error.code == "PRD-302"
    assert "the code calls it with [99], recorded is [100]" in decision.error.message


THRICE = RetryPolicy(max_attempts=3, interval=1.0, backoff_rate=2.0, max_interval=5.0)
TWICE_FAILED = ONCE.plus(DOWN)

AFTER = [
    ("first of three", THRICE, ONCE, False, RetryIn(1.0)),
    ("second of three", THRICE, TWICE_FAILED, False, RetryIn(2.0)),
    ("only one", RetryPolicy(), ONCE, False, GiveUp(DOWN)),
    ("declined at once", THRICE, ONCE, True, GiveUp(DOWN)),
    ("opened again, only one", RetryPolicy(), Failures(0, (DOWN,)).plus(DOWN), False, GiveUp(DOWN)),
]


@pytest.mark.parametrize(
    ("policy", "failures", "declined", "then"), [case[1:] for case in AFTER], ids=[c[0] for c in AFTER]
)
def test_what_follows_a_failure(policy, failures, declined, then):
    assert after_failure(policy, "charge", failures, DOWN, declined=declined) == then


@pytest.mark.parametrize(("failures", "declined"), [(TWICE_FAILED.plus(DOWN), False), (TWICE_FAILED, True)])
def test_several_failures_are_given_up_together(failures, declined):
    then = after_failure(THRICE, "charge", failures, DOWN, declined=declined)
    assert isinstance(then, GiveUp)
    assert then.error.code == "PRD-405"
    assert f"step charge failed {failures.count} times, last with OSError: down" in then.error.message
