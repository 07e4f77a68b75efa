"""The worker's reports on a real API server, with the one right the chart gives a worker."""

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from perdure.api import default_registry
from perdure.model.states import RunStatus
from perdure.store import runs
from perdure.store.pool import connect
from perdure.telemetry import names
from perdure.worker.answers import Answer, Verdict
from perdure.worker.kubeapi import KubeApi
from perdure.worker.link import Connection, Link
from perdure.worker.reporter import Reporter
from perdure.worker.worker import Worker, new_metrics

from tests.reconcile.harness import Place, claim_one, eventually, register
from tests.support.controlplane import ApiError
from tests.support.proxy import Proxy
from tests.support.workerproc import effects, enqueue, finished, open_gate, settings, until_effect
from tests.worker import flows

RIGHTS = [{"apiGroups": ["perdure.dev"], "resources": ["workflows/status"], "verbs": ["patch"]}]
STATUS_PATCH = "application/json-patch+json"


@dataclass
class Recording:
    """The real API, with a note of each write."""

    api: KubeApi
    writes: list[tuple[float, Mapping[str, Any], Answer]] = field(default_factory=list)

    async def write_status(self, *, namespace: str, name: str, uid: str, status: Mapping[str, Any]) -> Answer:
        sent_at = time.monotonic()
        answer = await self.api.write_status(namespace=namespace, name=name, uid=uid, status=status)
        self.writes.append((sent_at, status, answer))
        return answer

    async def close(self) -> None:
        await self.api.close()


@dataclass
class Shop:
    """A namespace with a worker's account, a database, and the means to run a Workflow in it."""

    place: Place
    conn: Connection
    token_file: Path

    async def submit(self, name: str, workflow: str, *args: Any, uid: str = "", **changes: Any) -> str:
        """A Workflow and its row, as the operator would make them; the run's id."""
        created = await self.place.apply(name, {"workflow": workflow})
        run_id = uid or created["metadata"]["uid"]
        await enqueue(
            self.conn,
            workflow,
            *args,
            run_id=run_id,
            name=name,
            namespace=self.place.namespace,
            generation=1,
            **changes,
        )
        return run_id

    @asynccontextmanager
    async def working(self, **changes: Any) -> AsyncIterator[tuple[Worker, Recording]]:
        metrics = new_metrics()
        plane = self.place.plane
        api = KubeApi(url=plane.url, token_file=self.token_file, ca_file=plane.ca_file, metrics=metrics)
        recording = Recording(api)
        worker = Worker(
            settings(namespace=self.place.namespace, **changes),
            default_registry,
            database_url=self.place.url,
            metrics=metrics,
            status_api=recording,
        )
        await worker.start()
        try:
            await worker.wait_until_working()
            yield worker, recording
        finally:
            await worker.stop()

    async def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.place.get(name)).get("status") or {}
        return found

    async def shows(self, name: str, phase: str) -> dict[str, Any]:
        async def there() -> bool:
            return (await self.status(name)).get("phase") == phase

        await eventually(there, f"{name} shows {phase}")
        return await self.status(name)

    async def reported(self, run_id: str) -> None:
        """Until the row says that its last status is in the API server."""

        async def recorded() -> bool:
            return bool(
                await self.conn.fetchval(
                    "SELECT reported_revision >= 0 AND status_due_at IS NULL FROM perdure.workflows WHERE id = $1",
                    run_id,
                )
            )

        await eventually(recorded, "the report is recorded")


@pytest.fixture
async def shop(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    account = "perdure-worker"
    token = await asyncio.to_thread(place.plane.service_account_token, place.namespace, account)
    token_file = tmp_path / f"worker-{uuid.uuid4().hex}"
    token_file.write_text(token)
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}"
    await place.call("POST", f"{roles}/roles", {"metadata": {"name": account}, "rules": RIGHTS})
    await place.call(
        "POST",
        f"{roles}/rolebindings",
        {
            "metadata": {"name": account},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": place.namespace}],
        },
    )
    monkeypatch.setenv("PERDURE_DATABASE_URL", place.url)
    conn = await connect(place.url, application_name="test")
    await conn.execute(flows.TABLES)
    yield Shop(place, conn, token_file)
    await conn.close()


async def test_a_run_is_shown_while_it_runs_and_when_it_has_ended(shop: Shop) -> None:
    run_id = await shop.submit("order", "t.gated", "g")
    async with shop.working() as (worker, _):
        await until_effect(shop.conn, run_id, "at", "begun")

        async def second_step() -> bool:
            steps = (await shop.status("order")).get("steps") or []
            return [step["phase"] for step in steps] == ["Succeeded", "Running"]

        await eventually(second_step, "the second step is shown running")
        status = await shop.status("order")
        assert status["phase"] == "Running"
        await open_gate(shop.conn, "g")
        last = await shop.shows("order", "Succeeded")
        assert [step["phase"] for step in last["steps"]] == ["Succeeded"] * 3
        assert last["revision"] > status["revision"]
        await shop.reported(run_id)
        revision = await shop.conn.fetchval("SELECT reported_revision FROM perdure.workflows WHERE id = $1", run_id)
        assert revision == last["revision"]
        assert worker.metrics.value(names.STATUS_WRITES, "ok") >= 2

        async def none_pending() -> bool:
            return worker.metrics.value(names.REPORTS_PENDING) == 0

        await eventually(none_pending, "no report is left")


async def test_a_run_without_a_resource_is_not_reported(shop: Shop) -> None:
    await enqueue(shop.conn, "t.notes", ["a"], run_id="r1", namespace=shop.place.namespace)
    async with shop.working() as (_, api):
        assert await finished(shop.conn, "r1") is RunStatus.SUCCEEDED
    assert api.writes == []


async def test_a_namesake_is_never_written(shop: Shop) -> None:
    """Deleted and created again under the same name: another run, another UID."""
    await shop.submit("order", "t.gated", "g", uid="11111111-2222-3333-4444-555555555555")
    async with shop.working() as (worker, api):
        await open_gate(shop.conn, "g")
        assert await finished(shop.conn, "11111111-2222-3333-4444-555555555555") is RunStatus.SUCCEEDED

        async def gone() -> bool:
            return worker.metrics.value(names.STATUS_WRITES, "gone") >= 1

        await eventually(gone, "the report is dropped")
    assert await shop.status("order") == {}
    assert {answer.verdict for _, _, answer in api.writes} == {Verdict.GONE}


async def test_a_deleted_resource_ends_the_reports_not_the_run(shop: Shop) -> None:
    run_id = await shop.submit("order", "t.gated", "g")
    async with shop.working() as (worker, _):
        await until_effect(shop.conn, run_id, "at", "begun")
        await shop.place.delete("order")
        await open_gate(shop.conn, "g")
        assert await finished(shop.conn, run_id) is RunStatus.SUCCEEDED

        async def gone() -> bool:
            return worker.metrics.value(names.STATUS_WRITES, "gone") >= 1

        await eventually(gone, "the report is dropped")

        async def none_pending() -> bool:
            return worker.metrics.value(names.REPORTS_PENDING) == 0

        await eventually(none_pending, "also what the end of the run had asked for is dropped")
    with pytest.raises(ApiError):
        await shop.place.get("order")


async def test_a_status_never_goes_back(shop: Shop) -> None:
    """Somebody wrote a higher revision: the worker leaves it alone, says so, and its run goes on."""
    run_id = await shop.submit("order", "t.gated", "g")
    path = f"/apis/perdure.dev/v1alpha1/namespaces/{shop.place.namespace}/workflows/order/status"
    ahead = [{"op": "replace", "path": "/status/revision", "value": 2**50}]
    async with shop.working() as (worker, api):
        await until_effect(shop.conn, run_id, "at", "begun")
        await shop.shows("order", "Running")
        await shop.place.call("PATCH", path, ahead, content_type=STATUS_PATCH)
        await open_gate(shop.conn, "g")
        assert await finished(shop.conn, run_id) is RunStatus.SUCCEEDED

        async def refused() -> bool:
            return worker.metrics.value(names.STATUS_WRITES, "conflict") >= 1

        await eventually(refused, "the write is refused")
    status = await shop.status("order")
    assert (status["revision"], status["phase"]) == (2**50, "Running")
    assert api.writes[-1][2].verdict is Verdict.STALE
    assert await shop.conn.fetchval("SELECT reported_revision FROM perdure.workflows WHERE id = $1", run_id) == -1


async def test_an_api_server_that_is_away_holds_up_nothing(shop: Shop) -> None:
    run_id = await shop.submit("order", "t.gated", "g")
    async with shop.working() as (worker, api):
        await until_effect(shop.conn, run_id, "at", "begun")
        await shop.shows("order", "Running")
        await asyncio.to_thread(shop.place.plane.stop_api_server)
        try:
            await open_gate(shop.conn, "g")
            assert await finished(shop.conn, run_id) is RunStatus.SUCCEEDED

            async def failed() -> bool:
                return worker.metrics.value(names.STATUS_WRITES, "error") >= 2

            await eventually(failed, "reports fail")
        finally:
            await asyncio.to_thread(shop.place.plane.start_api_server)
        last = await shop.shows("order", "Succeeded")
        await shop.reported(run_id)
    assert len(await effects(shop.conn, run_id)) == 4
    final = [status for _, status, answer in api.writes if answer.verdict is Verdict.OK][-1]
    assert final["revision"] == last["revision"]


async def test_an_api_server_that_does_not_answer_holds_up_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.worker.kubeapi.REQUEST_SECONDS", 1.0)
    run_id = await shop.submit("order", "t.gated", "g")
    async with shop.working() as (worker, _):
        with shop.place.plane.api_server_frozen():
            await open_gate(shop.conn, "g")
            assert await finished(shop.conn, run_id) is RunStatus.SUCCEEDED

            async def failed() -> bool:
                return worker.metrics.value(names.STATUS_WRITES, "error") >= 1

            await eventually(failed, "a report runs into its limit")
        await shop.shows("order", "Succeeded")


async def test_at_most_one_write_a_second_and_the_last_always(shop: Shop) -> None:
    run_id = await shop.submit("order", "t.paced", 160, 0.02)
    async with shop.working() as (_, api):
        assert await finished(shop.conn, run_id) is RunStatus.SUCCEEDED
        await shop.shows("order", "Succeeded")
        await shop.reported(run_id)
    written = [(at, status) for at, status, answer in api.writes if answer.verdict is Verdict.OK]
    running = [at for at, status in written if status["phase"] == "Running"]
    assert len(running) >= 3
    assert all(later - earlier >= 0.95 for earlier, later in itertools.pairwise(running))
    assert [status["phase"] for _, status in written if status["phase"] != "Running"] == ["Succeeded"]
    revisions = [status["revision"] for _, status in written]
    assert revisions == sorted(revisions)


async def test_a_waiting_run_shows_what_it_waits_for(shop: Shop) -> None:
    await shop.submit("order", "t.slow_retry")
    async with shop.working():
        status = await shop.shows("order", "Waiting")
        assert status["waitingFor"]
        await shop.shows("order", "Succeeded")


async def test_a_released_run_is_shown_as_pending(shop: Shop) -> None:
    run_id = await shop.submit("order", "t.gated", "never")
    async with shop.working(drain_seconds=2.0) as (worker, _):
        await until_effect(shop.conn, run_id, "at", "begun")
        await shop.shows("order", "Running")
        worker.drain()
        await worker.wait()
    assert await runs.get_status(shop.conn, run_id) is RunStatus.ENQUEUED
    assert (await shop.status("order"))["phase"] == "Pending"


async def test_a_stop_waits_for_a_status_that_is_still_being_read(shop: Shop) -> None:
    """While it is read, it is neither due nor on its way: behind a pooler that takes long enough to be forgotten."""
    run_id = await shop.submit("order", "t.notes", ["a"])
    plane, metrics = shop.place.plane, new_metrics()
    run = await claim_one(shop.conn, await register(shop.conn, shop.place, manifest=("workflow:t.notes",)))
    api = KubeApi(url=plane.url, token_file=shop.token_file, ca_file=plane.ca_file, metrics=metrics)
    async with Proxy(urlsplit(shop.place.url).port or 0) as proxy:
        link = Link(proxy.through(shop.place.url), application_name="reports", statement_timeout=8.0)
        await link.call(runs.get_status, run_id)
        reporter = Reporter(api, link, metrics)
        reporter.start()
        proxy.hold_answers()
        reporter.changed(run, final=True)

        async def held() -> bool:
            return proxy.held_answers == 1

        await eventually(held, "the status is being read")
        flush = asyncio.create_task(reporter.flush(20.0))
        for _ in range(5):  # its turns, in which it would end
            await asyncio.sleep(0)
        assert not flush.done()
        proxy.release()
        await flush
        await reporter.stop()
        await api.close()
        link.drop()
    assert (await shop.status("order"))["phase"] == "Running"


async def test_without_rights_runs_go_on_and_reports_wait(shop: Shop, tmp_path: Path) -> None:
    shop.token_file.write_text("no such token")
    run_id = await shop.submit("order", "t.notes", ["a"])
    async with shop.working() as (worker, api):
        assert await finished(shop.conn, run_id) is RunStatus.SUCCEEDED

        async def refused() -> bool:
            return worker.metrics.value(names.API_REQUESTS, "patch", "401") >= 1

        await eventually(refused, "the token is refused")
        token = await asyncio.to_thread(shop.place.plane.service_account_token, shop.place.namespace, "perdure-worker")
        shop.token_file.write_text(token)
        await shop.shows("order", "Succeeded")
    assert api.writes[-1][2].verdict is Verdict.OK
