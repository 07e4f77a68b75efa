"""`perdure manifest`: what it prints, and how `--check` ends."""

import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from perdure.api import registering
from perdure.cli.main import app
from perdure.engine.registry import Registry
from perdure.worker import main as worker_main
from typer.testing import CliRunner

SHOP = """
import perdure


@perdure.workflow(name="shop.order"{options})
async def order(name: str) -> str:
    return name{change}
"""

runner = CliRunner()
numbers = count()


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A module of one release of the shop; its name. Registers when it is loaded, beside nothing else."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def made(change: str = "", options: str = "", text: str = SHOP) -> str:
        registry = Registry()
        monkeypatch.setattr(registering, "default_registry", registry)
        monkeypatch.setattr(worker_main, "default_registry", registry)
        name = f"manifested_shop_{next(numbers)}"
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(text.format(change=change, options=options))
        return name

    return made


@pytest.fixture
def old(release: Callable[..., str], tmp_path: Path) -> Path:
    path = tmp_path / "old.json"
    path.write_text(runner.invoke(app, ["manifest", "--module", release()]).stdout)
    return path


def test_it_prints_what_the_modules_have(release: Callable[..., str]) -> None:
    result = runner.invoke(app, ["manifest", "--module", release(options=', version_policy="auto"')])
    assert result.exit_code == 0
    found = json.loads(result.stdout)["workflows"]["shop.order"]
    assert len(found["source_hash"]) == 64
    assert found["version_policy"] == "auto"
    assert found["input"]["required"] == ["name"]


def test_modules_and_policy_come_from_the_environment_unless_they_are_given(
    release: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_MODULES", release())
    monkeypatch.setenv("PERDURE_VERSION_POLICY", "patched")
    found = json.loads(runner.invoke(app, ["manifest"]).stdout)
    assert found["workflows"]["shop.order"]["version_policy"] == "patched"


def test_the_same_code_is_exit_code_0(release: Callable[..., str], old: Path) -> None:
    result = runner.invoke(app, ["manifest", "--module", release("  # a comment"), "--check", str(old)])
    assert (result.exit_code, result.stdout) == (0, "nothing is different\n")


def test_a_body_that_has_changed_is_exit_code_1(release: Callable[..., str], old: Path) -> None:
    result = runner.invoke(app, ["manifest", "--module", release(" * 2"), "--check", str(old)])
    assert result.exit_code == 1
    assert "shop.order: has changed; its runs stay with the version that began them" in result.stdout


def test_a_change_behind_a_patch_is_told_and_is_exit_code_0(release: Callable[..., str], old: Path) -> None:
    module = release(" * 2", ', version_policy="patched"')
    result = runner.invoke(app, ["manifest", "--module", module, "--check", str(old)])
    assert result.exit_code == 0
    assert "behind a patch" in result.stdout


def test_a_workflow_that_is_gone_is_exit_code_1(release: Callable[..., str], old: Path) -> None:
    module = release(text=SHOP.replace("shop.order", "shop.sale"))
    result = runner.invoke(app, ["manifest", "--module", module, "--check", str(old)])
    assert result.exit_code == 1
    assert "shop.order: is gone" in result.stdout
    assert "shop.sale: is new" in result.stdout


@pytest.mark.parametrize("arguments", [[], ["--module", "no.such.module"]])
def test_without_modules_that_can_be_loaded_it_is_exit_code_2(
    release: Callable[..., str], arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERDURE_MODULES", raising=False)
    release()
    result = runner.invoke(app, ["manifest", *arguments])
    assert result.exit_code == 2
    assert "module" in result.stderr


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}'])
def test_an_old_manifest_that_is_none_is_exit_code_2(release: Callable[..., str], tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    result = runner.invoke(app, ["manifest", "--module", release(), "--check", str(path)])
    assert result.exit_code == 2
    assert "manifest" in result.stderr


def test_an_old_manifest_that_is_not_there_is_exit_code_2(release: Callable[..., str], tmp_path: Path) -> None:
    result = runner.invoke(app, ["manifest", "--module", release(), "--check", str(tmp_path / "nowhere.json")])
    assert result.exit_code == 2
