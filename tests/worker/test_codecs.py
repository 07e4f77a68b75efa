"""Codecs with real workers: what stands in the database, who can read it, and what an outage of a store does."""

import asyncio
import json
from pathlib import Path
from typing import Any

import perdure
import pytest
from perdure.api import step, workflow
from perdure.cli.offloading import lines, sweep_all
from perdure.codecs import Compression, Encryption, Offload
from perdure.codecs.sweeping import Swept
from perdure.engine.encoding import LARGE as THREADED
from perdure.engine.registry import Registry
from perdure.model.states import RunStatus
from perdure.store.pool import connect

from tests.support.pgwait import eventually
from tests.support.workerproc import working

SECRET = "the card is 4000 1234 "
LARGE = SECRET * 2000
OLD, NEW = b"o" * 32, b"n" * 32
SOON = 20.0
OLD_DAY = "20200102"


class Flow:
    """A workflow with a large argument through a step, and how often the step's body ran."""

    def __init__(self, *codecs: Any) -> None:
        self.bodies = 0
        self.registry = Registry()
        for codec in codecs:
            self.registry.serializers.add_codec(codec)

        @step(name="double", registry=self.registry)
        async def double(text: str) -> str:
            self.bodies += 1
            return text * 2

        @workflow(name="codecs.double", registry=self.registry, max_run_attempts=1)
        async def flow(text: str) -> int:
            await perdure.set_event("seen", text)
            return len(await double(text))

        self.flow = flow


async def values_of(db: str, run_id: str) -> dict[str, str]:
    connection = await connect(db, application_name="look")
    try:
        row = await connection.fetchrow(
            "SELECT input, output FROM perdure.workflow_payloads WHERE workflow_id = $1", run_id
        )
        done = await connection.fetchrow(
            "SELECT input, output FROM perdure.workflow_steps WHERE workflow_id = $1 AND name = 'double'", run_id
        )
        event = await connection.fetchval("SELECT value FROM perdure.events WHERE workflow_id = $1", run_id)
    finally:
        await connection.close()
    return {
        "input": row["input"],
        "output": row["output"],
        "arguments": done["input"],
        "result": done["output"],
        "event": event,
    }


async def test_values_are_compressed_encrypted_and_elsewhere_and_read_again(db: str, tmp_path: Path) -> None:
    codecs = [Compression(), Encryption({"k": OLD}), Offload(str(tmp_path), at_least=200)]
    flow = Flow(*codecs)
    async with (
        working(db, flow.registry, codecs=("zlib", "aes-gcm", "offload")),
        perdure.Client(db, "ns", codecs=codecs) as client,
    ):
        handle = await client.start(flow.flow, LARGE)
        assert await handle.result(timeout=SOON) == len(LARGE) * 2
        assert await client.get_event(handle.id, "seen", timeout=SOON) == LARGE
    stored = await values_of(db, handle.id)
    assert all(text.startswith("!offload:") for name, text in stored.items() if name != "output")
    assert stored["output"].startswith("!aes-gcm:k:")
    kept = contents(tmp_path)
    assert len(kept) >= 4
    assert not any(b"4000" in data for data in kept)


async def test_values_that_are_encrypted_in_a_thread_are_so_wherever_they_are_stored(db: str) -> None:
    codec, text = Encryption({"k": OLD}), SECRET * 4000
    assert len(text) > THREADED
    flow = Flow(codec)
    async with working(db, flow.registry, codecs=("aes-gcm",)), perdure.Client(db, "ns", codecs=[codec]) as client:
        handle = await client.start(flow.flow, text)
        assert await handle.result(timeout=SOON) == len(text) * 2
        assert await client.get_event(handle.id, "seen", timeout=SOON) == text
    stored = await values_of(db, handle.id)
    assert all(value.startswith("!aes-gcm:k:") for value in stored.values())


async def test_small_values_are_as_ever_where_no_codec_takes_them(db: str, tmp_path: Path) -> None:
    codecs = [Compression(), Offload(str(tmp_path))]
    flow = Flow(*codecs)
    async with (
        working(db, flow.registry, codecs=("zlib", "offload")),
        perdure.Client(db, "ns", codecs=codecs) as client,
    ):
        handle = await client.start(flow.flow, "x")
        assert await handle.result(timeout=SOON) == 2
    assert await values_of(db, handle.id) == {
        "input": '["x"]',
        "output": "2",
        "arguments": '["x"]',
        "result": '"xx"',
        "event": '"x"',
    }
    assert not contents(tmp_path)


async def at_once(db: str, run_id: str) -> None:
    """Whatever the run waits for is over."""
    connection = await connect(db, application_name="hurry")
    await connection.execute("UPDATE perdure.workflows SET wake_at = now() WHERE id = $1", run_id)
    await connection.close()


async def test_keys_rotate_while_runs_go_on(db: str) -> None:
    before, after = Encryption({"old": OLD}), Encryption({"old": OLD, "new": NEW}, active="new")
    flow = Flow(after)
    async with perdure.Client(db, "ns", codecs=[before]) as client:
        handle = await client.start(flow.flow, SECRET)
    async with working(db, flow.registry, codecs=("aes-gcm",)), perdure.Client(db, "ns", codecs=[after]) as client:
        assert await client.handle(handle.id).result(timeout=SOON) == len(SECRET) * 2
    stored = await values_of(db, handle.id)
    assert stored["input"].startswith("!aes-gcm:old:")
    assert stored["output"].startswith("!aes-gcm:new:")


async def test_a_run_whose_key_a_worker_lacks_is_kept_for_one_that_has_it(db: str) -> None:
    without, flow = Flow(Encryption({"old": OLD})), Flow(Encryption({"new": NEW}))
    async with perdure.Client(db, "ns", codecs=[Encryption({"new": NEW})]) as client:
        handle = await client.start(flow.flow, SECRET)
        async with working(db, without.registry):

            async def refused() -> bool:
                return "PRD-407" in str((await client.get_workflow(handle.id)).error or "")

            await eventually(refused, "the worker without the key has given it back")
        assert without.bodies == 0
        await at_once(db, handle.id)
        async with working(db, flow.registry):
            assert await handle.result(timeout=SOON) == len(SECRET) * 2


class Declined(Exception):
    def __init__(self, card: str) -> None:
        super().__init__("the card was declined")
        self.card = card


async def test_what_an_exception_carries_is_as_secret_as_the_values(db: str) -> None:
    codec, registry = Encryption({"k": OLD}), Registry()
    registry.serializers.add_codec(codec)

    @step(name="charge", registry=registry, max_attempts=2, interval=0)
    async def charge() -> None:
        raise Declined("4000 1234")

    @workflow(name="codecs.charge", registry=registry, max_run_attempts=1)
    async def flow() -> None:
        await charge()

    @workflow(name="codecs.parent", registry=registry, max_run_attempts=1)
    async def parent() -> str:
        handle = await flow.start()
        try:
            await handle.result()
        except perdure.MaxStepRetriesExceeded as error:
            return str([each.card for each in error.errors if isinstance(each, Declined)])
        return ""

    async with working(db, registry, codecs=("aes-gcm",)), perdure.Client(db, "ns", codecs=[codec]) as client:
        handle = await client.start(parent)
        assert await handle.result(timeout=SOON) == "['4000 1234', '4000 1234']"
        with pytest.raises(perdure.MaxStepRetriesExceeded) as caught:
            await client.handle(f"{handle.id}-0").result(timeout=SOON)
        assert [getattr(each, "card", "") for each in caught.value.errors] == ["4000 1234"] * 2
    connection = await connect(db, application_name="look")
    texts = await connection.fetch(
        "SELECT concat(error, output, input, attempt_errors) AS text FROM perdure.workflow_steps"
        " UNION ALL SELECT concat(error, output, input) FROM perdure.workflow_payloads"
    )
    await connection.close()
    assert len(texts) == 5
    assert not any("4000" in row["text"] for row in texts)
    assert any("the card was declined" in row["text"] for row in texts)


async def test_an_outage_of_the_store_is_waited_out_and_no_step_is_done_again(
    db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offload = Offload(str(tmp_path), at_least=100)
    flow = Flow(offload)
    real, refused = offload._files.pipe_file, asyncio.Event()
    loop = asyncio.get_running_loop()

    def refuse(*args: Any, **kwargs: Any) -> None:
        if flow.bodies:  # what the step has returned is to be written
            loop.call_soon_threadsafe(refused.set)
            raise ConnectionError("no route")
        real(*args, **kwargs)

    monkeypatch.setattr(offload._files, "pipe_file", refuse)
    async with (
        working(db, flow.registry, codecs=("offload",)),
        perdure.Client(db, "ns", codecs=[offload]) as client,
    ):
        handle = await client.start(flow.flow, LARGE)
        await asyncio.wait_for(refused.wait(), SOON)
        assert await handle.status() is RunStatus.RUNNING
        monkeypatch.setattr(offload._files, "pipe_file", real)
        assert await handle.result(timeout=SOON) == len(LARGE) * 2
    assert flow.bodies == 1


async def test_a_start_whose_input_cannot_be_put_elsewhere_starts_nothing(
    db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offload = Offload(str(tmp_path), at_least=100)

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(offload._files, "pipe_file", refuse)
    async with perdure.Client(db, "ns", codecs=[offload]) as client:
        with pytest.raises(perdure.PayloadsUnavailable, match="no route"):
            await client.start(Flow(offload).flow, LARGE)
        assert not (await client.list_workflows()).runs


async def test_a_sweep_keeps_what_rows_name_and_removes_the_rest(
    db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_DATABASE_URL", db)
    offload = Offload(str(tmp_path), at_least=100)
    flow = Flow(offload)
    async with working(db, flow.registry, codecs=("offload",)), perdure.Client(db, "ns", codecs=[offload]) as client:
        handle = await client.start(flow.flow, LARGE)
        assert await handle.result(timeout=SOON) == len(LARGE) * 2
        today, stray = made_old(tmp_path)
        connection = await connect(db, application_name="look")
        for table in ("workflow_payloads", "workflow_steps"):
            await connection.execute(
                f"UPDATE perdure.{table} SET input = replace(input, $1, $2), output = replace(output, $1, $2)",
                f"!offload:{today}/",
                f"!offload:{OLD_DAY}/",
            )
        await connection.execute("DELETE FROM perdure.events")
        await connection.execute("DELETE FROM perdure.events_history")
        await connection.close()
        for dry_run in (True, False):
            found = await asyncio.to_thread(sweep_all, flow.registry, keep_days=7, dry_run=dry_run)
            # That of the event, which was deleted, and the stray one.
            assert found == {"offload": Swept(values=5, named=3, removed=2)}
            assert stray.exists() is dry_run
        assert lines(found, dry_run=False) == ["offload: 5 values, 3 in use, 2 removed"]
        assert json.loads(await client.handle(handle.id).output_raw() or "") == len(LARGE) * 2


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def made_old(folder: Path) -> tuple[str, Path]:
    """As if all of it had been written long ago, with one value that no row names; the day of before, and that one."""
    (today,) = folder.iterdir()
    old = today.rename(folder / OLD_DAY)
    stray = old / "ab" / ("ab" * 32)
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("nobody's")
    return today.name, stray


def test_a_sweep_without_such_a_codec_says_so() -> None:
    registry = Registry()
    registry.serializers.add_codec(Compression())
    with pytest.raises(perdure.ConfigurationError, match=r"no perdure\.codecs\.Offload is registered"):
        sweep_all(registry, keep_days=7, dry_run=False)
