"""Every metric of worker and operator, declared once: name, type, help, labels, buckets.

`telemetry.prometheus.Metrics` builds its instruments from these values, `docs/reference/metrics.md` is generated
from them, and the chart's alerts are compared with them in a test. No label ever holds a run, a pod, a message or
a key: what a label may hold is bounded by the code that is deployed, and capped besides (`MAX_LABEL_VALUES`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MAX_LABEL_VALUES = 200
"""Distinct values of one label of one metric before further ones become `OTHER`: more is no longer a dashboard."""

OTHER = "other"
"""Value that stands for all values beyond the cap."""

STATEMENT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Seconds of one database statement or API request: about 1 ms when all is well, the timeout at the end."""

WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0)
"""Seconds a ready run waits to be claimed: from a wake by notification to a starved queue."""

STEP_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0)
"""Seconds of one attempt of a step: from a no-op to six hours."""

LAG_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Seconds by which the event loop was late: from noise to a lost lease."""

ROW_BUCKETS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 300.0)
"""Rows of one journal statement, up to the cap of a statement."""


class Kind(StrEnum):
    """The type of a metric, as Prometheus calls it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Component(StrEnum):
    """Who emits a metric."""

    WORKER = "worker"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Labels are given by position, in the order declared. `buckets` only for histograms."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    emitted_by: tuple[Component, ...] = (Component.WORKER,)


_OPERATOR = (Component.OPERATOR,)
_BOTH = (Component.WORKER, Component.OPERATOR)

# -- both

BUILD_INFO = Metric(
    "perdure_build_info", Kind.GAUGE, "Always 1; the labels say what runs.", ("component", "version"), emitted_by=_BOTH
)
STATUS_WRITES = Metric(
    "perdure_status_writes_total",
    Kind.COUNTER,
    "Writes of a resource's status by outcome: ok, conflict (a newer one was there), refused (revision or rule), "
    "gone (no such object or a namesake), error (no answer or a server error; tried again).",
    ("outcome",),
    emitted_by=_BOTH,
)
API_REQUESTS = Metric(
    "perdure_api_requests_total",
    Kind.COUNTER,
    "Requests to the Kubernetes API by verb and HTTP status (0 = no answer).",
    ("verb", "status"),
    emitted_by=_BOTH,
)
API_REQUEST_SECONDS = Metric(
    "perdure_api_request_duration_seconds",
    Kind.HISTOGRAM,
    "Duration of requests to the Kubernetes API.",
    ("verb",),
    STATEMENT_BUCKETS,
    _BOTH,
)
LOOP_LAG_SECONDS = Metric(
    "perdure_loop_lag_seconds",
    Kind.HISTOGRAM,
    "How late the event loop came back to a timer. A blocking call in an async function shows here.",
    (),
    LAG_BUCKETS,
    _BOTH,
)
STORE_ERRORS = Metric(
    "perdure_store_errors_total",
    Kind.COUNTER,
    "Statements without a result, by what they were for and SQLSTATE class (or `connection`). Most are tried again.",
    ("operation", "class"),
    emitted_by=_BOTH,
)
LEASE_EXPIRIES = Metric(
    "perdure_lease_expiries_total",
    Kind.COUNTER,
    "Workers that this process marked dead because their lease ran out.",
    emitted_by=_BOTH,
)
RECOVERIES = Metric(
    "perdure_recoveries_total",
    Kind.COUNTER,
    "Runs moved away from workers that are gone, by outcome: requeued, or parked (recovered too often without "
    "progress).",
    ("outcome",),
    emitted_by=_BOTH,
)
WAKES = Metric(
    "perdure_wakes_total",
    Kind.COUNTER,
    "Pools told that delayed or waiting runs became ready, by pool.",
    ("namespace", "pool"),
    emitted_by=_BOTH,
)

SCHEDULE_TICKS = Metric(
    "perdure_schedule_ticks_total",
    Kind.COUNTER,
    "Ticks of schedules that this process settled, by outcome: started, skipped (a run before it had not ended), "
    "missed (nobody was there in time).",
    ("outcome",),
    emitted_by=_BOTH,
)

# -- worker

RUNS_REMOVED = Metric(
    "perdure_runs_removed_total",
    Kind.COUNTER,
    "Ended runs that this worker removed: they had become old, or their resource was gone.",
    emitted_by=(Component.WORKER,),
)
RUNS_ADOPTED = Metric(
    "perdure_runs_adopted_total",
    Kind.COUNTER,
    "Runs that an earlier version of the pool's workers began and that this worker had go on with its own.",
    emitted_by=(Component.WORKER,),
)
RUNS_FINISHED = Metric(
    "perdure_runs_finished_total",
    Kind.COUNTER,
    "Runs that ended in this process, by outcome: succeeded, failed, cancelled, recovery_attempts_exceeded.",
    ("namespace", "workflow", "outcome"),
)
RUNS_UNDONE = Metric(
    "perdure_runs_undone_total",
    Kind.COUNTER,
    "Runs that ended in this process once their steps were undone, by outcome: complete, incomplete (some could not "
    "be undone).",
    ("namespace", "workflow", "outcome"),
)
RUNS_GIVEN_BACK = Metric(
    "perdure_runs_given_back_total",
    Kind.COUNTER,
    "Runs that left this process without having ended, by reason: parked, parked_again (woken, and what it waits for "
    "was not there: many mean that wakes go wrong), delayed, released, forced (a drain ran out "
    "of time), lost (the fence moved on), unknown (claimed, but the answer never came).",
    ("reason",),
)
STEPS = Metric(
    "perdure_steps_total",
    Kind.COUNTER,
    "Attempts of steps by outcome: succeeded, failed (no further attempt), retrying.",
    ("workflow", "step", "outcome"),
)
STEP_SECONDS = Metric(
    "perdure_step_duration_seconds",
    Kind.HISTOGRAM,
    "Duration of one attempt of a step, from the durable start to the recorded outcome.",
    ("workflow", "step"),
    STEP_BUCKETS,
)
CLAIM_LATENCY_SECONDS = Metric(
    "perdure_claim_latency_seconds",
    Kind.HISTOGRAM,
    "How long a claimed run had been ready (from its run_at or its last wake to the claim).",
    ("queue",),
    WAIT_BUCKETS,
)
CLAIM_SECONDS = Metric(
    "perdure_claim_statement_duration_seconds", Kind.HISTOGRAM, "Duration of a claim.", (), STATEMENT_BUCKETS
)
CLAIMED_RUNS = Metric("perdure_claimed_runs_total", Kind.COUNTER, "Runs claimed, by queue.", ("queue",))
HEARTBEAT_AGE_SECONDS = Metric(
    "perdure_heartbeat_age_seconds",
    Kind.GAUGE,
    "Seconds since the send of the last successful beat. Over the lease, the worker starts nothing more.",
)
BEATS_SKIPPED = Metric(
    "perdure_heartbeats_skipped_total",
    Kind.COUNTER,
    "Beats not sent because the event loop did not answer in time.",
)
WORKER_LOST = Metric(
    "perdure_worker_lost_total", Kind.COUNTER, "Times this worker found itself marked dead and registered anew."
)
SLOTS = Metric("perdure_worker_slots", Kind.GAUGE, "Runs this worker may hold at once.")
SLOTS_BUSY = Metric("perdure_worker_slots_busy", Kind.GAUGE, "Runs this worker holds now.")
DRAINING = Metric("perdure_worker_draining", Kind.GAUGE, "1 while the worker claims nothing more because it stops.")
OWNERSHIP_LOST = Metric(
    "perdure_ownership_lost_total", Kind.COUNTER, "Runs whose fence moved on while this worker still ran them."
)
JOURNAL_FLUSH_ROWS = Metric(
    "perdure_journal_flush_rows", Kind.HISTOGRAM, "Steps and endings in one journal statement.", (), ROW_BUCKETS
)
JOURNAL_FLUSH_SECONDS = Metric(
    "perdure_journal_flush_duration_seconds", Kind.HISTOGRAM, "Duration of a journal statement.", (), STATEMENT_BUCKETS
)
JOURNAL_PENDING_ROWS = Metric(
    "perdure_journal_pending_rows", Kind.GAUGE, "Steps and endings that wait to be written, or for their answer."
)
JOURNAL_RETRIES = Metric(
    "perdure_journal_retries_total",
    Kind.COUNTER,
    "Runs whose writes were sent again, by reason: connection, contention, timeout, split, other.",
    ("reason",),
)
REPORTS_PENDING = Metric(
    "perdure_status_reports_pending", Kind.GAUGE, "Runs whose status this worker has yet to write."
)

# -- operator

RUNS = Metric(
    "perdure_runs", Kind.GAUGE, "Runs that have not ended, by phase.", ("namespace", "phase"), emitted_by=_OPERATOR
)
QUEUE_READY = Metric(
    "perdure_queue_ready_runs",
    Kind.GAUGE,
    "Runs that could be claimed now.",
    ("namespace", "pool", "queue"),
    emitted_by=_OPERATOR,
)
QUEUE_OLDEST_READY_SECONDS = Metric(
    "perdure_queue_oldest_ready_age_seconds",
    Kind.GAUGE,
    "Age of the run that has been ready longest, 0 when there is none.",
    ("namespace", "pool", "queue"),
    emitted_by=_OPERATOR,
)
POOL_WORKERS = Metric(
    "perdure_pool_workers",
    Kind.GAUGE,
    "Workers whose lease stands, by state: live, draining.",
    ("namespace", "pool", "state"),
    emitted_by=_OPERATOR,
)
POOL_REPLICAS = Metric(
    "perdure_pool_replicas",
    Kind.GAUGE,
    "Replicas of a pool over all its versions: desired and current.",
    ("namespace", "pool", "state"),
    emitted_by=_OPERATOR,
)
RECONCILES = Metric(
    "perdure_reconcile_total",
    Kind.COUNTER,
    "Reconciles by kind and result: ok, retry (asked to come back), error.",
    ("kind", "result"),
    emitted_by=_OPERATOR,
)
RECONCILE_SECONDS = Metric(
    "perdure_reconcile_duration_seconds",
    Kind.HISTOGRAM,
    "Duration of one reconcile.",
    ("kind",),
    STATEMENT_BUCKETS,
    _OPERATOR,
)
WORKQUEUE_DEPTH = Metric(
    "perdure_workqueue_depth", Kind.GAUGE, "Keys that wait to be reconciled.", ("kind",), emitted_by=_OPERATOR
)
WORKQUEUE_WAIT_SECONDS = Metric(
    "perdure_workqueue_wait_seconds",
    Kind.HISTOGRAM,
    "Time a key waited before it was reconciled.",
    ("kind",),
    WAIT_BUCKETS,
    _OPERATOR,
)
RESYNC_AGE_SECONDS = Metric(
    "perdure_resync_age_seconds",
    Kind.GAUGE,
    "Seconds since the last full comparison of resources and rows ended well.",
    emitted_by=_OPERATOR,
)
LEADER = Metric("perdure_leader", Kind.GAUGE, "1 in the operator that leads.", emitted_by=_OPERATOR)


def declared(component: Component | None = None) -> tuple[Metric, ...]:
    """All metrics of a component (of both without one), in the order of this file."""
    found = [value for value in globals().values() if isinstance(value, Metric)]
    return tuple(metric for metric in found if component is None or component in metric.emitted_by)
