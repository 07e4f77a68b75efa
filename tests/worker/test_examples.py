"""The examples, each as its page says, on a real worker: ten thousand items, a cron, a reminder after a month."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import perdure
import pytest
from perdure.api import default_registry
from perdure.model.states import RunStatus
from perdure.store.pool import connect
from perdure.testing import Environment
from perdure.worker.bootstrap import Bootstrap

from examples.approval import flows as approval
from examples.cron import flows as cron
from examples.fanout import flows as fanout
from examples.reminder import flows as reminder
from examples.saga import flows as saga
from tests.support.workerproc import working

ITEMS = 10_000
TOTAL = sum(item % 7 for item in range(ITEMS))
MONTH = timedelta(days=30)


@pytest.fixture
async def env(db: str) -> AsyncIterator[Environment]:
    async with Environment(db, registry=default_registry) as made:
        yield made


async def counted(db: str, query: str, *arguments: Any) -> int:
    connection = await connect(db, application_name="test")
    try:
        return int(await connection.fetchval(query, *arguments))
    finally:
        await connection.close()


# -- ten thousand items


async def test_ten_thousand_items_in_portions_are_a_hundred_children_and_ten_thousand_steps(db: str) -> None:
    async with working(db, namespace="default", slots=20), perdure.Client(db) as client:
        handle = await client.start(fanout.in_portions, ITEMS, 100)
        assert await handle.result(timeout=60) == f"{ITEMS} readings, {TOTAL} in all"
        own = await counted(db, "SELECT count(*) FROM perdure.workflow_steps WHERE workflow_id = $1", handle.id)
        measured = await counted(db, "SELECT count(*) FROM perdure.workflow_steps WHERE name = 'measure'")
        children = await counted(db, "SELECT count(*) FROM perdure.workflows WHERE parent_id = $1", handle.id)
    assert (own, measured, children) == (201, ITEMS, 100)


async def test_the_last_portion_is_as_large_as_what_is_left(db: str) -> None:
    async with working(db, namespace="default"), perdure.Client(db) as client:
        assert await client.run(fanout.in_portions, 250, 100) == "250 readings, 745 in all"


async def test_items_as_runs_of_their_own_give_the_same(db: str) -> None:
    """Fewer, as a run costs more than a step."""
    async with working(db, namespace="default", slots=100), perdure.Client(db) as client:
        assert await client.run(fanout.one_by_one, 700, 300) == "700 readings, 2100 in all"


# -- by the clock


async def test_the_cron_starts_a_run_every_minute_and_says_which_minute_it_is_for(env: Environment) -> None:
    hook = Bootstrap("examples.cron.flows:schedules")
    await hook.run()
    await hook.close()
    await env.skip(timedelta(minutes=3))
    page = await env.list_workflows(id_prefix="schedule:default/minutely/", newest_first=False)
    # Real time passes as well: it may bring one more.
    assert [run.status for run in page.runs][:3] == [RunStatus.SUCCEEDED] * 3
    results = [await env.handle(run.id, cron.report).result() for run in page.runs[:3]]
    minutes = [datetime.fromisoformat(f"{result[3:19]}+00:00") for result in results]
    assert [later - before for before, later in pairwise(minutes)] == [timedelta(minutes=1)] * 2
    assert {result[:3] for result in results} == {"eu "}


async def test_the_schedules_of_the_cron_are_those_of_its_code_however_often_it_is_deployed(env: Environment) -> None:
    for _ in range(2):
        await cron.schedules()
    assert sorted(each.name for each in await env.schedules.list()) == ["minutely", "nightly"]


# -- after a month


async def test_a_reminder_goes_out_each_month_until_there_is_none_left(env: Environment) -> None:
    handle = await env.start(reminder.collect, "ann", 4200)
    for number in (1, 2, 3):
        await env.skip(MONTH - timedelta(days=1))
        assert await handle.status() is RunStatus.WAITING
        await env.skip(timedelta(days=1))
        assert await env.get_event(handle.id, "reminders", timeout=0) == number
    assert await handle.result() == "to be collected"
    assert timedelta(days=90) <= env.skipped < timedelta(days=91)
    history = await env.history(handle)
    assert [call.output.split(" (")[0] for call in history.of("send_mail")] == [
        "invoice over 42.00 to ann",
        "reminder 1 to ann",
        "reminder 2 to ann",
        "reminder 3 to ann",
    ]


async def test_who_pays_is_not_reminded_again(env: Environment) -> None:
    handle = await env.start(reminder.collect, "ben", 100)
    await env.skip(MONTH + timedelta(days=3))
    await env.send(handle.id, {"cents": 100}, "paid")
    assert await handle.result() == "paid after 1 reminders"


async def test_a_reminder_survives_the_death_of_its_worker_in_the_middle_of_a_mail(env: Environment) -> None:
    env.crash(reminder.send_mail, "done", run_id="i-1")
    handle = await env.start(reminder.collect.options(id="i-1"), "eve", 100)
    await env.skip(MONTH)
    assert await env.get_event(handle.id, "reminders", timeout=0) == 1
    first = (await env.history(handle)).of("send_mail")[0]
    assert first.output == "invoice over 1.00 to eve (i-1/0)"


# -- somebody decides


async def test_an_expense_waits_for_a_month_and_then_nobody_has_decided(env: Environment) -> None:
    handle = await env.start(approval.approve, "ann", 1999)
    await env.skip(MONTH - timedelta(hours=1))
    assert await handle.status() is RunStatus.WAITING
    await env.skip(timedelta(hours=2))
    assert await handle.result() == "nobody decided"


async def test_an_expense_is_paid_once_it_is_granted_and_what_is_no_decision_is_told(env: Environment) -> None:
    handle = await env.start(approval.approve.options(id="e-1"), "ann", 1999)
    await env.send(handle.id, {"granted": "perhaps"}, "approval")
    await env.settle()
    assert "not understood" in str(await env.get_event("e-1", "state", timeout=0))
    await env.send(handle.id, {"granted": True, "by": "ben"}, "approval")
    assert await handle.result() == "payment e-1/4: 19.99 to ann"


async def test_an_expense_that_is_refused_pays_nothing(env: Environment) -> None:
    handle = await env.start(approval.approve, "ann", 1999)
    await env.send(handle.id, {"granted": False, "by": "ben", "comment": "too much"}, "approval")
    assert await handle.result() == "refused by ben: too much"


# -- what was done is undone


async def undone(env: Environment, handle: perdure.Handle[str]) -> list[str]:
    """What undid its steps, in order."""
    history = await env.history(handle)
    return history.outputs[history.names.index("perdure.undo") + 1 :]


async def test_an_order_that_no_courier_takes_is_undone_after_its_last_attempt(env: Environment) -> None:
    handle = await env.start(saga.place.options(id="o-1"), "1", 3, 4250, "atlantis")
    await env.settle()
    assert await handle.status() is RunStatus.DELAYED
    await env.skip(timedelta(minutes=1))
    with pytest.raises(saga.NoCourier, match="nobody drives to atlantis"):
        await handle.result()
    assert await undone(env, handle) == ["42.50 of payment-o-1/1 are given back", "3 pieces of hold-1 are back"]


async def test_an_order_is_undone_when_nobody_has_come_for_two_weeks(env: Environment) -> None:
    handle = await env.start(saga.place.options(id="o-2"), "2", 1, 1999, "france")
    await env.skip(timedelta(days=14))
    await env.skip(timedelta(minutes=1))
    with pytest.raises(saga.NoCourier, match="nobody came for parcel-hold-2"):
        await handle.result()
    assert len(await undone(env, handle)) == 2


async def test_an_order_that_the_customer_takes_back_is_undone(env: Environment) -> None:
    handle = await env.start(saga.place.options(id="o-3"), "3", 1, 1999, "france")
    await env.settle()
    await handle.cancel("the customer has changed their mind", mode=perdure.CancelMode.COMPENSATE)
    with pytest.raises(perdure.WorkflowCancelled):
        await handle.result()
    assert await undone(env, handle) == ["19.99 of payment-o-3/1 are given back", "1 pieces of hold-3 are back"]


async def test_an_order_that_was_fetched_stays(env: Environment) -> None:
    handle = await env.start(saga.place, "4", 1, 1999, "france")
    await env.send(handle.id, "the post", "fetched")
    assert await handle.result() == "parcel-hold-4 is with the post"
