"""What a program may say of a schedule, and what the id of a scheduled run says."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import perdure
import pytest
from perdure.api import workflow
from perdure.engine.registry import Registry
from perdure.errors import InvalidArgument
from perdure.model.schedules import CatchUp, Overlap, ScheduledTick, run_id_of_tick, run_id_of_trigger, tick_of

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@workflow(name="report", registry=Registry())
async def report(region: str, days: int = 1) -> None: ...


def said(**changes: Any) -> perdure.Schedule:
    given: dict[str, Any] = {"name": "nightly", "cron": "0 2 * * *", "start": report.prepare("eu")}
    return perdure.Schedule(**{**given, **changes})


def test_what_is_not_said_has_a_default() -> None:
    rule = said().row("pool").rule
    assert (rule.time_zone, rule.overlap, rule.catch_up) == ("UTC", Overlap.ALLOW, CatchUp.LATEST)
    assert (rule.window, rule.jitter) == (3600.0, 0.0)


def test_the_start_says_what_is_started_and_how() -> None:
    options = report.options(queue="q", priority=7, timeout=60, partition_key="p", attributes={"team": "a"})
    row = said(start=options.prepare("eu", 3), overlap="queue-one", catch_up="all", jitter=timedelta(seconds=5)).row(
        "pool"
    )
    assert (row.workflow, row.input) == ("report", '["eu",3]')
    assert (row.pool, row.queue, row.priority, row.timeout, row.partition_key) == ("pool", "q", 7, 60.0, "p")
    assert row.attributes == '{"team": "a"}'
    assert (row.rule.overlap, row.rule.catch_up, row.rule.jitter) == (Overlap.QUEUE_ONE, CatchUp.ALL, 5.0)


@pytest.mark.parametrize(("given", "text"), [(["eu"], '["eu"]'), ({"region": "eu"}, '{"region":"eu"}'), ((), "[]")])
def test_a_workflow_can_be_said_by_its_name(given: Any, text: str) -> None:
    row = said(start="elsewhere", arguments=given).row("pool")
    assert (row.workflow, row.input) == ("elsewhere", text)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": ""}, "the name of a schedule"),
        ({"name": "a/b"}, "the name of a schedule"),
        ({"name": "-a"}, "the name of a schedule"),
        ({"name": "x" * 64}, "the name of a schedule"),
        ({"name": None}, "the name of a schedule"),
        ({"cron": "0 2 * *"}, "5 fields"),
        ({"time_zone": "Mars/Base"}, "no time zone"),
        ({"overlap": "forbid"}, "overlap is one of 'allow', 'skip', 'cancel-previous', 'queue-one'"),
        ({"catch_up": True}, "catch_up is one of"),
        ({"catch_up_window": 0}, "catch_up_window must be longer than zero"),
        ({"catch_up_window": timedelta(days=367)}, "catch_up_window is at most"),
        ({"jitter": -1}, "jitter must be longer than zero"),
        ({"jitter": 3601}, "jitter is at most 3600"),
        ({"start": report}, "workflow.prepare"),
        ({"start": ""}, "workflow must not be empty"),
        ({"arguments": [1]}, "has its arguments already"),
        ({"start": report.options(id="x").prepare("eu")}, "the option id"),
        ({"start": report.options(delay=1).prepare("eu")}, "the option delay"),
        ({"start": report.options(serialization="portable").prepare("eu")}, "as their workflow is registered"),
        ({"start": report.options(deduplication_id="x").prepare("eu")}, "the option deduplication_id"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_with_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        said(**changes)


def test_the_id_of_a_tick_is_the_same_in_every_zone() -> None:
    assert run_id_of_tick("ns", "n", NOON) == run_id_of_tick("ns", "n", NOON.astimezone(timezone(timedelta(hours=5))))


@pytest.mark.parametrize("namespace", ["ns", "a/b", "a b"])
def test_an_id_says_its_schedule_and_its_tick(namespace: str) -> None:
    assert tick_of(run_id_of_tick(namespace, "n.1", NOON)) == ScheduledTick("n.1", NOON, triggered=False)
    triggered = run_id_of_trigger(namespace, "n.1", NOON + timedelta(seconds=7, microseconds=5), "0af")
    assert tick_of(triggered) == ScheduledTick("n.1", NOON + timedelta(seconds=7), triggered=True)


@pytest.mark.parametrize(
    "run_id",
    [
        "order-1",
        "schedule:",
        "schedule:ns/n/2026-06-01T12:00:00Z-3",
        "schedule:ns/n/2026-06-01T12:00:00Z~0af-3",
        "schedule:ns/n/2026-13-01T12:00:00Z",
        "schedule:n/2026-06-01T12:00:00",
    ],
)
def test_an_id_of_no_schedule_says_none_and_neither_does_that_of_a_child(run_id: str) -> None:
    assert tick_of(run_id) is None
