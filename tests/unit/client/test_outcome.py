"""What a run's row is to whoever asked for the result."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import perdure
import pytest
from perdure.api import Workflow
from perdure.client.handle import limit_of
from perdure.client.outcome import Expected
from perdure.engine.failures import describe
from perdure.engine.registry import Registry
from perdure.errors import (
    ConflictingWorkflow,
    DecodingFailed,
    InvalidArgument,
    MaxRecoveryAttemptsExceeded,
    MaxStepRetriesExceeded,
    PerdureError,
    StepFailed,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowNotFinished,
)
from perdure.model.outcome import ErrorRecord
from perdure.model.states import RunStatus
from perdure.store.clients import RunSight


@dataclass
class Receipt:
    order: str
    cents: int


class OutOfStock(Exception):
    def __init__(self, item: str, left: int) -> None:
        super().__init__(f"only {left} of {item}")
        self.item = item
        self.left = left


@perdure.workflow(name="buy", registry=Registry())
async def buy(order: str) -> Receipt:
    return Receipt(order, 1)


@perdure.workflow(name="nothing", registry=Registry())
async def nothing() -> None: ...


SIGHT = RunSight(
    id="x",
    workflow="buy",
    status=RunStatus.SUCCEEDED,
    armed=False,
    complete=True,
    output='{"order":"1","cents":5}',
    error=None,
    cancel_reason=None,
    recoveries=0,
)


def value(sight: RunSight, workflow: Workflow[..., Any] | None = buy) -> Any:
    return Expected("x", None if workflow is None else workflow.definition).value(sight)


def test_a_result_has_the_type_that_the_workflow_says() -> None:
    assert value(SIGHT) == Receipt("1", 5)


def test_without_the_workflow_a_result_is_plain_json() -> None:
    assert value(SIGHT, None) == {"order": "1", "cents": 5}


def test_none_is_a_result() -> None:
    assert value(replace(SIGHT, workflow="nothing", output="null"), nothing) is None
    assert value(replace(SIGHT, workflow="nothing", output="null"), None) is None


def test_a_result_that_does_not_fit_says_so() -> None:
    with pytest.raises(DecodingFailed, match="the result of run x"):
        value(replace(SIGHT, output='{"order":"1"}'))


def test_a_run_of_another_workflow_gives_no_result_of_this_one() -> None:
    with pytest.raises(ConflictingWorkflow, match="run x is of workflow refund"):
        value(replace(SIGHT, workflow="refund"))


def failed(record: ErrorRecord) -> RunSight:
    return replace(SIGHT, status=RunStatus.FAILED, output=None, error=record.to_json())


def test_a_failure_is_raised_as_its_own_class_and_says_which_run_raised_it() -> None:
    with pytest.raises(OutOfStock, match="only 2 of pens") as raised:
        value(failed(describe(OutOfStock("pens", 2))))
    assert (raised.value.item, raised.value.left) == ("pens", 2)
    assert raised.value.__notes__ == ["raised by run x"]


def test_a_failure_of_a_class_that_is_not_here_is_a_failed_workflow_that_names_it() -> None:
    with pytest.raises(WorkflowFailed, match=r"run x failed in step charge: shop\.Declined: no money"):
        value(failed(ErrorRecord("shop.Declined", "no money", step="charge")))


def test_a_failure_that_could_not_be_built_where_it_happened_is_a_failed_workflow_too() -> None:
    with pytest.raises(WorkflowFailed, match=r"run x failed in step charge: shop\.Declined: no money") as raised:
        value(failed(describe(StepFailed("shop.Declined: no money", "shop.Declined"), "charge")))
    assert raised.value.type_name == "shop.Declined"


def test_a_failure_of_ours_keeps_its_code_and_the_errors_of_all_attempts() -> None:
    with pytest.raises(MaxStepRetriesExceeded) as raised:
        value(failed(describe(MaxStepRetriesExceeded("all failed", (OutOfStock("pens", 2), ValueError("two"))))))
    assert (raised.value.code, raised.value.attempts) == ("PRD-405", 2)
    assert [str(error) for error in raised.value.errors] == ["only 2 of pens", "two"]
    assert isinstance(raised.value.errors[0], OutOfStock)
    assert raised.value.errors[0].left == 2


def test_a_failure_without_a_record_is_still_a_failure() -> None:
    with pytest.raises(WorkflowFailed):
        value(replace(SIGHT, status=RunStatus.FAILED, output=None))


@pytest.mark.parametrize(
    ("status", "error", "says"),
    [
        (RunStatus.CANCELLED, WorkflowCancelled, "run x was cancelled: not wanted"),
        (RunStatus.MAX_RECOVERY_ATTEMPTS_EXCEEDED, MaxRecoveryAttemptsExceeded, "taken over 11 times"),
        (RunStatus.ENQUEUED, WorkflowNotFinished, "it is ENQUEUED"),
        (RunStatus.DELAYED, WorkflowNotFinished, "it is DELAYED"),
        (RunStatus.RUNNING, WorkflowNotFinished, "it is RUNNING"),
        (RunStatus.WAITING, WorkflowNotFinished, "it is WAITING"),
    ],
)
def test_every_status_without_a_result_has_its_error(status: RunStatus, error: type[PerdureError], says: str) -> None:
    sight = replace(SIGHT, status=status, output=None, cancel_reason="not wanted", recoveries=11)
    with pytest.raises(error, match=says):
        value(sight)


def test_of_timeout_and_deadline_the_earlier_counts() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=50)

    assert limit_of(None, None) is None
    assert limit_of(timedelta(minutes=1), None) == 60.0
    assert 49.0 < (limit_of(None, soon) or 0.0) <= 50.0
    assert 49.0 < (limit_of(60, soon) or 0.0) <= 50.0
    assert limit_of(10, soon) == 10.0
    assert limit_of(None, soon - timedelta(days=1)) == 0.0


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), timedelta()])
def test_a_timeout_of_a_wait_is_longer_than_zero(timeout: Any) -> None:
    with pytest.raises(InvalidArgument, match="timeout must be longer than zero"):
        limit_of(timeout, None)


def test_a_deadline_needs_a_time_zone() -> None:
    with pytest.raises(InvalidArgument, match="time zone"):
        limit_of(None, datetime(2030, 1, 1))  # noqa: DTZ001 - the mistake
