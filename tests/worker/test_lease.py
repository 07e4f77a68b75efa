"""The heartbeat: who gets a beat, who does not, and what happens to the bodies of a lost worker."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from perdure.model.rows import OwnedRun, WorkerRow
from perdure.model.states import RunStatus, WorkerState
from perdure.store import workers
from perdure.telemetry import names
from perdure.telemetry.names import Metric
from perdure.worker import beater
from perdure.worker.beater import EXIT_CODE, Beater, Heard
from perdure.worker.lease import LocalLease, lease_clock
from perdure.worker.link import Connection
from perdure.worker.worker import new_metrics

from tests.support.pgwait import eventually
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy
from tests.support.workerproc import connect_again, effects, enqueue, finished, open_gate, until_effect, working

ME = "me-1"


@dataclass
class Listener:
    """What a worker hears from its beater."""

    bodies: int = 0
    stamps: int = 0
    rows: list[tuple[int, Sequence[OwnedRun]]] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    exited: threading.Event = field(default_factory=threading.Event)

    def pong(self) -> int:
        self.stamps += 1
        return self.stamps

    def count_bodies(self) -> int:
        self.asked.set()
        return self.bodies

    def exit_process(self, code: int) -> None:
        self.exits.append(code)
        self.exited.set()

    def heard(self) -> Heard:
        return Heard(
            pong=self.pong,
            rows=lambda stamp, rows: self.rows.append((stamp, rows)),
            dead=self.dead.append,
            bodies=self.count_bodies,
            exit_process=self.exit_process,
        )


@asynccontextmanager
async def beating(conn: Connection, url: str, seconds: float) -> AsyncIterator[tuple[Listener, LocalLease, Any]]:
    row = WorkerRow(ME, "ns", "default", "pod", "", "1", ("default",), (), 4)
    sent_at = lease_clock()
    await workers.register(conn, row, seconds)
    lease = LocalLease(seconds)
    lease.extend(sent_at)
    listener = Listener()
    metrics = new_metrics()
    heart = Beater(url, ME, lease, listener.heard(), metrics)
    heart.start()
    try:
        yield listener, lease, metrics
    finally:
        await heart.stop()


async def beaten(listener: Listener, count: int = 1) -> None:
    async def enough() -> bool:
        return len(listener.rows) >= count

    await eventually(enough, f"{count} beats")


async def dead(listener: Listener) -> str:
    async def told() -> list[str]:
        return listener.dead

    return (await eventually(told, "the worker hears that it is dead"))[0]


async def test_beats_extend_the_lease_and_bring_back_what_is_owned(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.x", run_id="r1")
    await conn.execute("UPDATE perdure.workflows SET status = 30, worker_id = $1, fence = 7 WHERE id = 'r1'", ME)
    async with beating(conn, db, 1.0) as (listener, lease, _):
        await beaten(listener, 4)
        assert lease.holds()
        stamps = [stamp for stamp, _ in listener.rows]
        assert stamps == sorted(set(stamps))
        (owned,) = listener.rows[-1][1]
        assert (owned.id, owned.fence, owned.cancel_mode, owned.suspended) == ("r1", 7, None, False)
        assert await conn.fetchval("SELECT lease_until > clock_timestamp() FROM perdure.workers WHERE id = $1", ME)


async def test_the_local_lease_never_outlasts_that_of_the_database(db: str, conn: Connection) -> None:
    async with beating(conn, db, 1.5) as (listener, lease, _):
        await beaten(listener, 3)
        here = lease.seconds - lease.age()
        there = await conn.fetchval(
            "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM perdure.workers WHERE id = $1", ME
        )
        # Asked before and after: the database's answer is the later of the two instants.
        assert here <= there + lease.seconds / 3


async def test_a_loop_that_does_not_answer_gets_no_beat(
    db: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with beating(conn, db, 1.2) as (listener, lease, metrics):
        skipped = threading.Semaphore(0)
        count = metrics.count

        def heard(metric: Metric, *labels: str, by: float = 1.0) -> None:
            count(metric, *labels, by=by)
            if metric is names.BEATS_SKIPPED:
                skipped.release()

        monkeypatch.setattr(metrics, "count", heard)
        await beaten(listener)
        sent = len(listener.rows)
        # This is the fault: the loop is blocked here, until a lease of beats was skipped.
        for _ in range(beater.BEATS_PER_LEASE):
            assert skipped.acquire(timeout=10.0)
        assert not lease.holds()
        # Nothing had been sent while it slept; once it answers, beats go on.
        await beaten(listener, sent + 1)
        assert listener.dead == []


async def test_a_worker_marked_dead_hears_it_once(db: str, conn: Connection) -> None:
    async with beating(conn, db, 1.0) as (listener, lease, _):
        await beaten(listener)
        await conn.execute("UPDATE perdure.workers SET state = 40, ended_at = now() WHERE id = $1", ME)
        assert "marked it dead" in await dead(listener)
        assert listener.exits == []
        assert lease is not None


async def test_cut_and_refused_connections_are_made_again(db: str, conn: Connection, pg_server: PostgresServer) -> None:
    async with Proxy(pg_server.port) as proxy, beating(conn, proxy.through(db), 2.0) as (listener, lease, metrics):
        for _ in range(3):
            count = len(listener.rows)
            await beaten(listener, count + 1)
            proxy.refuse()
            proxy.cut()
            failures = metrics.value(names.STORE_ERRORS, "beat", "connection")

            async def failed(before: float = failures) -> bool:
                return metrics.value(names.STORE_ERRORS, "beat", "connection") > before

            await eventually(failed, "a beat fails")
            proxy.accept()
        await beaten(listener, len(listener.rows) + 1)
        assert lease.holds()
        assert listener.dead == []


async def test_a_silent_database_stops_the_bodies_in_the_end_and_the_process_lives(
    db: str, conn: Connection, pg_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beater, "SILENCE_LEASES", 2)
    async with Proxy(pg_server.port) as proxy, beating(conn, proxy.through(db), 1.0) as (listener, lease, _):
        await beaten(listener)
        proxy.refuse()
        proxy.cut()
        assert "no beat succeeded for 2" in await dead(listener)
        assert not lease.holds()
        assert await asyncio.to_thread(listener.asked.wait, 10.0), "it looks whether bodies are left"
    # The beater's thread has ended: what it has not done by now it never does.
    assert listener.exits == []


async def test_a_body_that_does_not_stop_then_ends_the_process(
    db: str, conn: Connection, pg_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beater, "SILENCE_LEASES", 2)
    async with Proxy(pg_server.port) as proxy, beating(conn, proxy.through(db), 1.0) as (listener, _, _):
        listener.bodies = 1
        await beaten(listener)
        proxy.refuse()
        proxy.cut()
        await dead(listener)
        assert await asyncio.to_thread(listener.exited.wait, 10.0)
        assert listener.exits == [EXIT_CODE]


async def test_a_loop_that_stays_blocked_ends_the_process(db: str, conn: Connection) -> None:
    async with beating(conn, db, 1.0) as (listener, _, _):
        listener.bodies = 1
        await beaten(listener)
        assert listener.exited.wait(10.0), "this loop is blocked here, and only the beater's thread can say so"


# -- the whole worker


async def test_a_worker_without_a_lease_begins_no_step(db: str, conn: Connection, pg_server: PostgresServer) -> None:
    """Its network is cut for longer than its lease: bodies that were admitted go on, no other begins."""
    await enqueue(conn, "t.gated_twice", "g1", "g2", run_id="r1")
    async with Proxy(pg_server.port) as proxy, working(proxy.through(db)) as cut_off:
        await until_effect(conn, "r1", "one", "begun")
        proxy.refuse()
        proxy.cut()
        async with working(db):
            await until_effect(conn, "r1", "one", "begun", 2)
            await open_gate(conn, "g1")
            await until_effect(conn, "r1", "two", "begun")
            await open_gate(conn, "g2")
            assert await finished(conn, "r1") is RunStatus.SUCCEEDED
        assert (await effects(conn, "r1")).count(("two", "begun")) == 1
        proxy.accept()
        await cut_off.wait_until_working()


async def test_a_lost_worker_stops_its_bodies_and_registers_anew(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "g", run_id="r1")
    async with working(db, lease_seconds=3.0) as worker:
        await until_effect(conn, "r1", "at", "begun")
        old = worker.id
        await conn.execute("UPDATE perdure.workers SET state = 40, ended_at = now() WHERE id = $1", old)

        async def anew() -> bool:
            return worker.id != old

        await eventually(anew, "it registers under a new id")
        # Its own sweep moves what the dead one held, and it claims that again.
        await until_effect(conn, "r1", "at", "begun", 2)
        await open_gate(conn, "g")
        assert await finished(conn, "r1") is RunStatus.SUCCEEDED
        assert worker.metrics.value(names.WORKER_LOST) == 1
    assert (await effects(conn, "r1")).count(("at", "ended")) == 1
    states = await conn.fetch("SELECT state FROM perdure.workers ORDER BY started_at")
    assert [found["state"] for found in states] == [WorkerState.DEAD, WorkerState.STOPPED]


async def test_a_run_taken_away_is_noticed_by_the_beat_and_said_once(db: str, conn: Connection) -> None:
    await enqueue(conn, "t.gated", "never", run_id="r1", queue="default")
    async with working(db) as worker:
        await until_effect(conn, "r1", "at", "begun")
        await conn.execute(
            "UPDATE perdure.workflows SET status = 10, worker_id = NULL, fence = fence + 1, queue = 'elsewhere' "
            "WHERE id = 'r1'"
        )

        async def noticed() -> bool:
            return worker.busy == 0

        await eventually(noticed, "the body is stopped")
        assert worker.metrics.value(names.OWNERSHIP_LOST) == 1
        assert worker.metrics.value(names.RUNS_GIVEN_BACK, "lost") == 1
    assert await conn.fetchval("SELECT fence FROM perdure.workflows WHERE id = 'r1'") == 2


async def test_nobody_is_marked_dead_before_a_lease_of_contact(
    db: str, conn: Connection, pg_server: PostgresServer
) -> None:
    """Two workers, the database away for longer than two leases: the bodies go on, no run counts as recovered."""
    for number in range(4):
        await enqueue(conn, "t.gated", "g", run_id=f"r{number}")
    async with working(db, slots=2, lease_seconds=2.0) as one, working(db, slots=2, lease_seconds=2.0) as two:
        for number in range(4):
            await until_effect(conn, f"r{number}", "at", "begun")
        before = {one.id, two.id}
        await asyncio.to_thread(pg_server.stop)

        async def long_lost() -> bool:
            return one.metrics.value(names.HEARTBEAT_AGE_SECONDS) > 4.5

        await eventually(long_lost, "the lease is long lost")
        await asyncio.to_thread(pg_server.start)
        again = await connect_again(db)
        await open_gate(again, "g")
        for number in range(4):
            assert await finished(again, f"r{number}") is RunStatus.SUCCEEDED
            assert len(await effects(again, f"r{number}")) == 4
        assert {one.id, two.id} == before
        assert await again.fetchval("SELECT sum(recoveries) FROM perdure.workflows") == 0
        await again.close()
