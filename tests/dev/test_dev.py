"""`perdure dev` as a person runs it: the command, its exit code, what it prints."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

SECONDS = 100.0

FLOWS = '''
import pathlib, threading
from perdure import step, workflow

@step(name="t.note")
async def note(folder: str, label: str) -> str:
    with open(pathlib.Path(folder) / label, "a") as file:
        file.write("x")
    return label

@step(name="t.hold")
def hold(folder: str, label: str) -> str:
    """Stands in the middle of the step the first time, until its process is killed."""
    path = pathlib.Path(folder) / label
    first = not path.exists()
    with open(path, "a") as file:
        file.write("x")
    if first:
        threading.Event().wait(60)
    return label

@step(name="t.bad")
async def bad() -> None:
    raise ValueError("it broke")

@workflow(name="t.three")
async def three(folder: str) -> list[str]:
    return [await note(folder, "a"), await hold(folder, "b"), await note(folder, "c")]

@workflow(name="t.quick")
async def quick(folder: str) -> str:
    return await note(folder, "a")

@workflow(name="t.failing")
async def failing() -> None:
    await bad()
'''
POOL: dict[str, Any] = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "WorkerPool",
    "metadata": {"name": "default"},
    "spec": {"modules": ["dev_flows"], "template": {"spec": {"containers": [{"name": "worker", "image": "none"}]}}},
}

Dev = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dev_flows.py").write_text(FLOWS)
    (tmp_path / "pool.yaml").write_text(yaml.safe_dump(POOL))
    (tmp_path / "effects").mkdir()
    return tmp_path


@pytest.fixture
def dev(folder: Path) -> Dev:
    """Runs the command on a Workflow with this spec."""

    def run(spec: dict[str, Any], *options: str) -> subprocess.CompletedProcess[str]:
        workflow = {**POOL, "kind": "Workflow", "metadata": {"name": "one"}, "spec": spec}
        (folder / "workflow.yaml").write_text(yaml.safe_dump(workflow))
        return subprocess.run(
            [sys.executable, "-m", "perdure.cli", "dev", str(folder / "workflow.yaml"), *options],
            cwd=folder,
            env={**os.environ, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    return run


def effects(folder: Path) -> dict[str, int]:
    """How often each step's body ran."""
    return {path.name: path.stat().st_size for path in sorted((folder / "effects").iterdir())}


def three(folder: Path) -> dict[str, Any]:
    return {"workflow": "t.three", "input": {"folder": str(folder / "effects")}}


def quick(folder: Path) -> dict[str, Any]:
    return {"workflow": "t.quick", "input": {"folder": str(folder / "effects")}}


def test_a_run_goes_on_after_its_worker_was_killed(dev: Dev, folder: Path) -> None:
    done = dev(three(folder), "--kill-worker-at", "t.hold")
    assert done.returncode == 0, done.stderr
    assert "killed worker dev-1 with SIGKILL while one was in step t.hold" in done.stderr
    assert "one goes on in" in done.stderr
    shown = yaml.safe_load(done.stdout)
    assert shown["kind"] == "Workflow" and shown["metadata"]["name"] == "one"
    assert shown["status"]["phase"] == "Succeeded"
    assert shown["status"]["output"] == ["a", "b", "c"]
    assert [step["phase"] for step in shown["status"]["steps"]] == ["Succeeded"] * 3
    # The step in which the worker died ran again; the finished one before it did not.
    assert effects(folder) == {"a": 1, "b": 2, "c": 1}


def test_the_hook_of_the_pool_runs_before_the_first_run(dev: Dev, folder: Path) -> None:
    (folder / "dev_hook.py").write_text("import os\n\ndef start() -> None:\n    os.chdir('effects')\n")
    spec = {**POOL["spec"], "bootstrap": "dev_hook:start"}
    (folder / "pool.yaml").write_text(yaml.safe_dump({**POOL, "spec": spec}))
    done = dev({"workflow": "t.quick", "input": {"folder": "."}})
    assert done.returncode == 0, done.stderr
    assert effects(folder) == {"a": 1}


def test_a_failed_run_ends_with_code_1_and_the_error(dev: Dev) -> None:
    done = dev({"workflow": "t.failing", "maxRunAttempts": 1})
    assert done.returncode == 1
    shown = yaml.safe_load(done.stdout)["status"]
    assert shown["phase"] == "Failed"
    assert "it broke" in shown["error"]["message"]
    assert "it broke" in done.stderr


@pytest.fixture
def kept() -> Iterator[Path]:
    """A folder outside pytest's own, which is closed to the user that Postgres runs as when root starts it."""
    with tempfile.TemporaryDirectory(prefix="perdure-kept-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def test_a_kept_database_knows_what_was_done(dev: Dev, folder: Path, kept: Path) -> None:
    first, second = (dev(quick(folder), "--data", str(kept)) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout == second.stdout
    assert effects(folder) == {"a": 1}


def test_declared_steps(dev: Dev, folder: Path) -> None:
    arguments = {"folder": str(folder / "effects")}
    steps = [
        {"name": "first", "task": "t.note", "with": {**arguments, "label": "x"}},
        {"name": "second", "task": "t.note", "with": {**arguments, "label": "y"}},
    ]
    done = dev({"steps": steps})
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)["status"]
    assert [step["name"] for step in shown["steps"]] == ["first", "second"]
    assert shown["output"] == {"first": "x", "second": "y"}


def test_a_kill_that_could_not_be_done_is_no_success(dev: Dev, folder: Path) -> None:
    done = dev(quick(folder), "--kill-worker-at", "no_such_step")
    assert done.returncode == 1
    assert "step no_such_step was never seen running" in done.stderr


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ({"workflow": "t.quik"}, (), "the modules register no workflow t.quik; did you mean t.quick?"),
        ({"steps": [{"name": "a", "task": "t.nothing"}]}, (), "the modules register no step t.nothing"),
        ({"workflow": "t.quick", "workerPool": "other"}, (), "no WorkerPool 'other'"),
        ({"workflow": "t.quick"}, ("--module", "no_such_module"), "no module no_such_module"),
        ({"wrkflow": "t.quick"}, (), "spec.wrkflow: unknown field"),
    ],
)
def test_mistakes_are_said_in_a_sentence(
    dev: Dev, spec: dict[str, Any], options: tuple[str, ...], message: str
) -> None:
    done = dev(spec, *options)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
