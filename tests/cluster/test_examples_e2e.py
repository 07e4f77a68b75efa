"""The examples as a user applies them: pool, code and run with kubectl, each to its end on a real cluster."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from tests.cluster.e2e import EndToEnd, end_to_end
from tests.cluster.release import Release
from tests.support.helm import ROOT
from tests.support.pgwait import eventually

EXAMPLES = ROOT / "examples"

A_MONTH_PASSES = (
    "UPDATE perdure.workflow_steps SET wake_at = wake_at - interval '30 days' WHERE workflow_id = $1 AND status = 15",
    "UPDATE perdure.workflows SET wake_at = wake_at - interval '30 days' WHERE id = $1 AND status = 40",
)

A_MINUTE_PASSES = (
    "UPDATE perdure.schedules SET next_at = now(), decided = now() - interval '2 minutes'"
    " WHERE namespace = $1 AND name = 'minutely' RETURNING name"
)

FANOUT_SECONDS = 240.0
"""On an idle machine it takes ten; it may share two cores with a whole cluster."""

TICK_SECONDS = 150.0
"""Pods start, and as above."""


@pytest.fixture
async def e2e(release: Release) -> AsyncIterator[EndToEnd]:
    async with end_to_end(release) as found:
        yield found


async def deployed(e2e: EndToEnd, example: str) -> None:
    """`kubectl apply -k`, with the image of this test."""
    text = await e2e.run("kustomize", str(EXAMPLES / example))
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    for document in documents:
        if document["kind"] == "WorkerPool":
            document["spec"]["template"]["spec"]["containers"][0]["image"] = e2e.release.worker_image
    await asyncio.to_thread(e2e.kubectl.apply, documents)


async def applied(e2e: EndToEnd, file: str) -> None:
    await e2e.run("apply", "-f", str(EXAMPLES / file))


async def waits(e2e: EndToEnd, name: str, for_what: str) -> None:
    await e2e.until(name, lambda status: status.get("phase") == "Waiting", f"{for_what} to be waited for")


async def test_the_order_is_processed(e2e: EndToEnd) -> None:
    await deployed(e2e, "order")
    await applied(e2e, "order/workflow.yaml")
    status = await e2e.finished("order-1001")
    assert status["phase"] == "Succeeded"
    assert (status["progress"], status["output"]["order_id"]) == ("5/5", "1001")


async def test_an_approval_waits_for_its_signal(e2e: EndToEnd) -> None:
    await deployed(e2e, "approval")
    await applied(e2e, "approval/workflow.yaml")
    await waits(e2e, "expense-7", "a decision")
    await applied(e2e, "approval/signal.yaml")
    status = await e2e.finished("expense-7")
    assert "19.99 to ann" in status["output"]


async def test_an_order_that_fails_or_is_taken_back_is_undone(e2e: EndToEnd) -> None:
    await deployed(e2e, "saga")
    for file in ("workflow", "waiting"):
        await applied(e2e, f"saga/{file}.yaml")
    failed = await e2e.finished("order-2001")
    assert (failed["phase"], failed["message"]) == ("Failed", "nobody drives to atlantis")
    assert [step["name"] for step in failed["steps"]][-2:] == ["refund", "release"]
    await waits(e2e, "order-2002", "its courier")
    await e2e.run("patch", "pwf", "order-2002", "--type", "merge", "-p", '{"spec": {"cancel": {"mode": "Compensate"}}}')
    taken_back = await e2e.finished("order-2002")
    assert taken_back["phase"] == "Cancelled"
    assert [step["name"] for step in taken_back["steps"]][-2:] == ["refund", "release"]


async def test_ten_thousand_items_are_done_by_the_pods_of_a_pool(e2e: EndToEnd) -> None:
    await deployed(e2e, "fanout")
    await applied(e2e, "fanout/workflow.yaml")
    status = await e2e.finished("readings-1", FANOUT_SECONDS)
    assert status["phase"] == "Succeeded"
    assert status["output"] == f"10000 readings, {sum(item % 7 for item in range(10_000))} in all"
    children, steps = await e2e.connection.fetchrow(
        "SELECT count(DISTINCT w.id), count(*) FROM perdure.workflows w"
        " JOIN perdure.workflow_steps s ON s.workflow_id = w.id WHERE w.parent_id = $1",
        await e2e.uid("readings-1"),
    )
    assert (children, steps) == (100, 10_000)


async def test_the_cron_starts_a_run_when_its_minute_has_come(e2e: EndToEnd) -> None:
    await deployed(e2e, "cron")
    prefix = f"schedule:{e2e.release.namespace}/minutely/%"

    async def minute_passed() -> bool:
        return await e2e.connection.fetchval(A_MINUTE_PASSES, e2e.release.namespace) is not None

    await eventually(minute_passed, "the schedule of the bootstrap hook", TICK_SECONDS)

    async def output() -> str | None:
        found: str | None = await e2e.connection.fetchval(
            "SELECT p.output FROM perdure.workflows w JOIN perdure.workflow_payloads p ON p.workflow_id = w.id"
            " WHERE w.id LIKE $1 AND w.status = 50 ORDER BY w.id LIMIT 1",
            prefix,
        )
        return found

    found = await eventually(output, "the run of a tick", TICK_SECONDS)
    assert found is not None
    assert found.startswith('"eu 20')
    await e2e.delete("workerpool", "visits")


async def test_a_reminder_goes_out_after_a_month_and_none_once_it_is_paid(e2e: EndToEnd) -> None:
    await deployed(e2e, "reminder")
    await applied(e2e, "reminder/workflow.yaml")
    await waits(e2e, "invoice-12", "a month")
    uid = await e2e.uid("invoice-12")
    for statement in A_MONTH_PASSES:
        await e2e.connection.execute(statement, uid)

    async def reminded() -> bool:
        count = (
            "SELECT count(*) FROM perdure.workflow_steps WHERE workflow_id = $1 AND name = 'send_mail' AND status = 30"
        )
        return bool(await e2e.connection.fetchval(count, uid) == 2)

    await eventually(reminded, "the reminder")
    await waits(e2e, "invoice-12", "the next month")
    await applied(e2e, "reminder/signal.yaml")
    assert (await e2e.finished("invoice-12"))["output"] == "paid after 1 reminders"
