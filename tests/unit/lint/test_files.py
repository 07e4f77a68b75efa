"""`perdure lint`: what may be given to it, and how it ends."""

from pathlib import Path

import pytest
from perdure.cli.main import app
from typer.testing import CliRunner

BAD = "import time\nimport perdure\n\n@perdure.workflow\nasync def flow():\n    time.time()\n"
GOOD = "import perdure\n\n@perdure.workflow\nasync def flow():\n    await perdure.sleep(1)\n"

runner = CliRunner()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lintedpackage").mkdir()
    (tmp_path / "lintedpackage" / "__init__.py").write_text("raise RuntimeError('was imported')\n")
    (tmp_path / "lintedpackage" / "bad.py").write_text(BAD)
    (tmp_path / "lintedpackage" / "good.py").write_text(GOOD)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "bad.py").write_text(BAD)
    (tmp_path / "broken.txt").write_text("def (")
    return tmp_path


@pytest.mark.parametrize("target", ["lintedpackage/bad.py", "lintedpackage", ".", "lintedpackage"])
def test_findings_are_printed_and_are_exit_code_1(folder: Path, target: str) -> None:
    result = runner.invoke(app, ["lint", target])
    assert result.exit_code == 1
    assert result.stdout.strip().endswith("(in workflow flow)")
    assert "bad.py:6:5: PDL01" in result.stdout
    assert result.stdout.count("\n") == 1


def test_a_module_is_found_by_its_name_and_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert runner.invoke(app, ["lint", "lintedpackage"]).exit_code == 1


def test_nothing_found_is_exit_code_0(folder: Path) -> None:
    result = runner.invoke(app, ["lint", "lintedpackage/good.py"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "0 found in 1 files" in result.stderr


@pytest.mark.parametrize("target", ["nowhere.py", "no.such.module", "broken.txt", "sys"])
def test_what_is_not_there_or_no_python_is_exit_code_2(folder: Path, target: str) -> None:
    result = runner.invoke(app, ["lint", target])
    assert result.exit_code == 2
    assert "error: " in result.stderr
