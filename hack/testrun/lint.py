"""The first tier: formatting, lint, types, layers, generated files, length of files. Each check counts as one test."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from localcluster.console import say

from testrun import LOGS, ROOT
from testrun.report import Result

LONGEST_FILE = 400
"""A file that needs more lines does more than one thing; every file here fits a person's head."""

LENGTH_COUNTS_FOR = ("*.py", "*.sql", "hack/*", "charts/perdure/templates/*")
TAIL = 60

TOOLS = ("localcluster", "testrun", "demolib", "features", "apidocs", "benchmarks")
"""Packages that are no part of the wheel; those of pyproject.toml are."""

Check = Callable[[], str]
"""Gives what is wrong, or an empty text."""


def run(python: Path) -> Result:
    """Run every check, also after one has failed, and show what each failing one says."""
    started = time.monotonic()
    checks: dict[str, Check] = {
        "ruff check": _command(python.parent / "ruff", "check"),
        "ruff format": _command(python.parent / "ruff", "format", "--check"),
        "mypy": _command(python.parent / "mypy"),
        "mypy of the tools": _command(python.parent / "mypy", *(f"--package={name}" for name in TOOLS)),
        "pyright": _command(python.parent / "pyright"),
        "lint-imports": _command(python.parent / "lint-imports"),
        "generated CRDs": _command(python, "-m", "perdure.resources.crdgen", "--check"),
        "reference of the API": _command("env", "PYTHONPATH=hack", python, "-m", "apidocs", "--check"),
        "file length": long_files,
    }
    LOGS.mkdir(parents=True, exist_ok=True)
    failed = []
    with (LOGS / "lint.log").open("w") as log:
        for name, check in checks.items():
            say(f"lint: {name}")
            problem = check()
            log.write(f"== {name}\n{problem or 'ok'}\n")
            if problem:
                failed.append(name)
                print(*problem.splitlines()[-TAIL:], sep="\n", flush=True)
    note = f"{', '.join(failed)}: see {LOGS.relative_to(ROOT)}/lint.log" if failed else ""
    return Result("lint", len(checks) - len(failed), len(failed), 0, time.monotonic() - started, note)


def _command(*argv: str | Path) -> Check:
    def check() -> str:
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}" or f"exit code {done.returncode}"

    return check


def long_files() -> str:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *LENGTH_COUNTS_FOR], cwd=ROOT, capture_output=True, text=True, check=True
    )
    problems = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and path.suffix != ".sum":
            lines = path.read_bytes().count(b"\n")
            if lines > LONGEST_FILE:
                problems.append(f"{name}: {lines} lines, at most {LONGEST_FILE}")
    return "\n".join(problems)
