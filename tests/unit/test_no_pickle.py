"""Nothing is ever unpickled: what a row holds can run no code, whoever has written it."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS_CODE = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "jsonpickle"}
"""Modules whose values can make code run, or make objects of any class, when they are read."""


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


def test_nothing_is_ever_unpickled() -> None:
    files = [*(ROOT / "worker_image").rglob("*.py"), *(ROOT / "operator").rglob("*.py")]
    assert len(files) > 100
    assert {path.name: found for path in files if (found := RUNS_CODE & set(imported(path)))} == {}


def test_the_check_would_notice(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    from pickle import loads\n    import dill.source\n")
    assert set(imported(tmp_path / "a.py")) & RUNS_CODE == {"pickle", "dill"}
