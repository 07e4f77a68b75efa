"""The virtual environment in .venv: exactly what requirements-dev.lock says, made once and stamped.

The stamp is a digest of everything that went in, so a second call costs a few milliseconds and a changed lock file
is never missed. `make venv`, `make test`, `make demo` and `make bench` all begin here.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

from localcluster.console import Failure, duration, run_with_progress, say

from testrun import ROOT

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK_FILE = ROOT / "requirements-dev.lock"
STAMP = VENV / ".perdure-stamp"
OLDEST_PYTHON = (3, 11)


def ensure() -> Path:
    """Make or mend the environment where it is not as locked; gives its Python."""
    if sys.version_info < OLDEST_PYTHON:
        raise Failure(
            f"Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer is needed, this is {sys.version.split()[0]}"
        )
    wanted = _digest()
    if _stamp() == wanted:
        return PYTHON
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    with (cache / "venv.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _stamp() != wanted:  # another process may have finished it while this one waited
            _make()
            STAMP.write_text(wanted)
    return PYTHON


def _digest() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for path in (LOCK_FILE, ROOT / "pyproject.toml"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _stamp() -> str:
    try:
        return STAMP.read_text()
    except FileNotFoundError:
        return ""


def _make() -> None:
    started = time.monotonic()
    say("python packages: installing what requirements-dev.lock says into .venv (about a minute with empty caches)")
    if not _usable():
        shutil.rmtree(VENV, ignore_errors=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            raise Failure(
                f"`python3 -m venv` failed; on Debian it needs the package python3-venv:\n{error.stdout}{error.stderr}"
            ) from None
    pip: list[str | Path] = [PYTHON, "-m", "pip", "--disable-pip-version-check"]
    done = 0

    def progress(line: str) -> str:
        nonlocal done
        done += line.startswith("Collecting ")
        return f"{done} packages" if done else ""

    run_with_progress(
        [*pip, "install", "--require-hashes", "-r", LOCK_FILE], "python packages", progress=progress, cwd=ROOT
    )
    # The project itself in place, so that `perdure` and `python -m perdure.worker` are the files of this tree.
    run_with_progress(
        [*pip, "install", "--no-deps", "--no-build-isolation", "--editable", ROOT],
        "the project itself",
        progress=lambda _: "",
        cwd=ROOT,
    )
    say(f"python packages: done in {duration(time.monotonic() - started)}")


def _usable() -> bool:
    """Whether .venv is a virtual environment of the Python that runs this."""
    try:
        answer = subprocess.run(
            [PYTHON, "-c", "import sys; print(sys.version)"], check=True, capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return answer.stdout.strip() == sys.version
