"""Which tests there are: from their text alone, or as pytest collects them with their marks."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from features import ROOT

ANSWER = "PERDURE_FEATURES_ANSWER"
"""Environment variable by which the plugin in `plugin` is told where to leave what it saw."""


def absent(tests: Iterable[str], root: Path = ROOT) -> list[str]:
    """Those that no file defines. Nothing is imported, so that it takes a moment."""
    defined: dict[str, set[str]] = {}
    gone = []
    for test in tests:
        name, _, function = test.partition("::")
        if name not in defined:
            path = root / name
            defined[name] = _functions(ast.parse(path.read_text()).body) if path.is_file() else set()
        if function not in defined[name]:
            gone.append(test)
    return gone


def _functions(body: list[ast.stmt], within: str = "") -> set[str]:
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(within + node.name)
        elif isinstance(node, ast.ClassDef):
            names |= _functions(node.body, f"{node.name}::")
    return names


def collected(tests: Iterable[str], root: Path = ROOT) -> tuple[dict[str, bool], str]:
    """Each test that pytest finds in the files of `tests`, without its parameters → whether all of it is skipped by
    marks; and what pytest says where it could not read a file."""
    files = sorted({name for test in tests if (root / (name := test.partition("::")[0])).is_file()})
    if not files:
        return {}, ""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        path = os.pathsep.join(filter(None, (str(ROOT / "hack"), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "features.plugin", *files],
            cwd=root,
            env={**os.environ, "PYTHONPATH": path, ANSWER: str(answer)},
            capture_output=True,
            text=True,
            check=False,
        )
        skipped: dict[str, bool] = json.loads(answer.read_text()) if answer.exists() else {}
    return skipped, "" if done.returncode == 0 else f"{done.stdout}{done.stderr}".strip()
