"""Histories of real runs: exported by the client and the command, and replayed against the code that recorded them."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import perdure
import pytest
from perdure.cli.main import app
from perdure.engine.registry import Registry
from perdure.errors import NonExistentWorkflow
from perdure.model.history import RunHistory
from perdure.model.states import RunStatus, StepStatus
from perdure.replay import replay
from typer.testing import CliRunner, Result

from tests.support.pgwait import eventually
from tests.support.workerproc import working

MODULE = __name__


@perdure.step(name="hist.flaky", max_attempts=3, interval=0.01)
async def flaky(run: str) -> int:
    step = perdure.current().step
    assert step is not None
    if step.attempt < 3:
        raise ConnectionError(f"attempt {step.attempt}")
    return step.attempt


@perdure.step(name="hist.hopeless", max_attempts=2, interval=0.01)
async def hopeless() -> None:
    raise ConnectionError("never")


@perdure.step(name="hist.add")
async def add(n: int) -> int:
    return n + 1


@perdure.workflow(name="hist.order")
async def order(n: int) -> list[Any]:
    tried = await flaky(perdure.current().run_id)
    sums = await perdure.gather(*(add(each) for each in range(n)))
    try:
        await hopeless()
    except perdure.MaxStepRetriesExceeded as error:
        return [tried, sum(sums), [str(each) for each in error.errors]]
    return []


own = Registry()


@perdure.workflow(name="hist.order", registry=own)
async def order_of_an_instance(n: int) -> int:
    return await add(n)


@perdure.workflow(name="hist.waits")
async def waits() -> None:
    await add(1)
    await perdure.gather(perdure.recv("never"), perdure.sleep(timedelta(days=30)))


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


async def command(*arguments: str) -> Result:
    """Each has a loop of its own."""
    return await asyncio.to_thread(run_command, *arguments)


@pytest.fixture
async def recorded(db: str) -> RunHistory:
    async with working(db, namespace="default"), perdure.Client(db) as client:
        handle = await client.start(order.options(id="o-1"), 3)
        await handle.result(timeout=30)
        return await client.export_history("o-1")


async def test_an_exported_run_has_all_that_a_replay_needs(recorded: RunHistory) -> None:
    assert recorded.status is RunStatus.SUCCEEDED
    assert [step.index for step in recorded.steps] == list(range(5))
    assert recorded.steps[0].attempts == 2
    assert RunHistory.from_json(recorded.to_json()).to_json() == recorded.to_json()
    report = await replay(recorded, strict=True)
    assert report.ok, report
    assert report.replayed == 5


async def test_a_run_that_waits_is_exported_and_replayed_to_where_it_stands(db: str) -> None:
    async with working(db, namespace="default"), perdure.Client(db) as client:
        handle = await client.start(waits)

        async def parked() -> bool:
            return (await client.get_workflow(handle.id)).status is RunStatus.WAITING

        await eventually(parked, "it waits")
        history = await client.export_history(handle.id)
    assert [step.status for step in history.steps][1:] == [StepStatus.WAITING] * 2
    report = await replay(history)
    assert report.ok, report
    assert report.replayed == 3


@pytest.mark.parametrize("size", [4 * 1024 * 1024, 1], ids=["of many steps", "of few bytes"])
async def test_a_history_of_many_steps_is_read_in_pages(db: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.store.claims.PAGE_BYTES", size)
    async with working(db, namespace="default"), perdure.Client(db) as client:
        handle = await client.start(order, 250)
        await handle.result(timeout=30)
        history = await client.export_history(handle.id)
    assert [step.index for step in history.steps] == list(range(252))
    assert (await replay(history, strict=True)).ok


async def test_what_is_not_there_cannot_be_exported(db: str) -> None:
    async with perdure.Client(db) as client:
        with pytest.raises(NonExistentWorkflow):
            await client.export_history("nobody")
    shown = await command("export", "nobody")
    assert shown.exit_code == 1
    assert "PRD-522" in shown.output


async def test_the_commands_export_a_run_and_replay_its_file(recorded: RunHistory, tmp_path: Path) -> None:
    printed = await command("export", "o-1")
    assert printed.exit_code == 0
    assert printed.stdout == recorded.to_json()
    file = tmp_path / "o-1.json"
    assert (await command("export", "o-1", "-o", str(file))).exit_code == 0
    shown = await command("replay", "--module", MODULE, "--strict", str(file))
    assert shown.exit_code == 0, shown.output
    assert f"{file}: run o-1 of hist.order: 5 of 5 steps replayed" in shown.stdout
    assert "1 replayed, 0 differ" in shown.stderr


async def test_the_workflows_of_an_instance_are_replayed_where_its_registry_is_named(
    recorded: RunHistory, tmp_path: Path
) -> None:
    file = tmp_path / "o-1.json"
    file.write_text(recorded.to_json())
    shown = await command("replay", "--registry", f"{MODULE}:own", str(file))
    assert shown.exit_code == 1
    assert "differs at index 0" in shown.stdout
    assert "in order_of_an_instance" in shown.stdout


async def test_the_newest_runs_of_a_database_are_replayed(
    recorded: RunHistory, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_MODULES", MODULE)
    shown = await command("replay", "--from-database", "--workflow", "hist.order", "--json")
    assert shown.exit_code == 0, shown.output
    assert [(each["run_id"], each["ok"]) for each in json.loads(shown.stdout)["histories"]] == [("o-1", True)]
    none = await command("replay", "--from-database", "--workflow", "hist.waits")
    assert none.exit_code == 0
    assert "0 replayed" in none.stderr


async def test_only_runs_that_have_not_ended_are_replayed_where_that_is_asked_for(
    recorded: RunHistory, db: str
) -> None:
    async with perdure.Client(db) as client:
        handle = await client.start(waits)
    shown = await command("replay", "--module", MODULE, "--from-database", "--unfinished", "--json")
    assert shown.exit_code == 0, shown.output
    assert [each["run_id"] for each in json.loads(shown.stdout)["histories"]] == [handle.id]


async def test_a_replay_names_what_differs_and_what_cannot_be_read_and_goes_on(
    recorded: RunHistory, tmp_path: Path
) -> None:
    other = recorded.to_json().replace('"hist.add"', '"hist.gone"', 1)
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text(recorded.to_json().replace('"hist.order"', '"hist.unknown"'))
    (tmp_path / "c.json").write_text(other)
    (tmp_path / "d.json").write_text(recorded.to_json())
    shown = await command("replay", "--module", MODULE, str(tmp_path))
    assert shown.exit_code == 1
    assert "PRD-317" in shown.stdout
    assert "PRD-304" in shown.stdout
    assert "differs at index 1" in shown.stdout
    assert "recorded: hist.gone [0] (succeeded)" in shown.stdout
    assert "sums = await perdure.gather(*(add(each) for each in range(n)))" in shown.stdout
    assert "d.json: run o-1 of hist.order: 5 of 5" in shown.stdout
    assert "3 replayed, 2 differ, 1 cannot be read" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "--module", MODULE], "name files"),
        (["replay", "--module", MODULE, "--from-database", "x.json"], "name files"),
        (["replay", "x.json"], "PERDURE_MODULES"),
        (["replay", "--module", "no.such.module", "x.json"], "no.such"),
        (["replay", "--registry", "no.such.module:app", "x.json"], "no.such"),
        (["replay", "--registry", f"{MODULE}:order", "x.json"], "MODULE:NAME"),
        (["replay", "--registry", MODULE, "x.json"], "MODULE:NAME"),
    ],
)
async def test_a_replay_of_nothing_is_refused(arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_MODULES", raising=False)
    shown = await command(*arguments)
    assert shown.exit_code == 2
    assert said in shown.output
    assert "Traceback" not in shown.output


async def test_a_file_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    shown = await command("replay", "--module", MODULE, str(tmp_path / "x.json"))
    assert shown.exit_code == 1
    assert "PRD-317: it cannot be read" in shown.output
