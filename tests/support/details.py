"""What a list or a question would show of a run and of a step."""

from datetime import UTC, datetime

from perdure.model.listing import RunDetails, StepDetails
from perdure.model.states import CancelMode, RunStatus, StepStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DETAILS = RunDetails(
    id="r",
    namespace="default",
    name=None,
    workflow="w",
    status=RunStatus.FAILED,
    pool="default",
    queue="default",
    priority=100,
    partition_key=None,
    version=None,
    parent_id=None,
    parent_step=None,
    forked_from=None,
    forked_at=None,
    rewinds=0,
    deduplication_id=None,
    attributes={"a": [1]},
    timeout=None,
    deadline_at=None,
    wake_at=None,
    created_at=NOW,
    started_at=NOW,
    finished_at=None,
    run_attempts=1,
    recoveries=0,
    suspended=False,
    cancel_mode=CancelMode.GRACEFUL,
    cancel_reason="why",
    waiting_for=None,
    worker=None,
)
STEP = StepDetails(0, "s", StepStatus.SUCCEEDED, 0, NOW, NOW, None, "[]", "1")
