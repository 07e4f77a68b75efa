"""Gets peers from the package registries: once for each version, into a folder of their own."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from localcluster.console import Failure, run_with_progress, say

CACHE = Path.home() / ".cache" / "perdure" / "bench"
PROGRAMS = Path(__file__).with_name("programs")

WRITABLE = 0o200


class Unavailable(Exception):
    """This peer cannot be had on this machine; the text says why."""


def python_environment(name: str, requirements: Sequence[str]) -> Path:
    """Folder of the programs of a virtual environment with these packages."""

    def make(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", folder], name)
        _run([folder / "bin" / "pip", "install", "--quiet", *requirements], name)

    return _once(name, json.dumps([sys.version, *requirements]), make) / "bin"


def node_packages(name: str, packages: Sequence[str]) -> Path:
    """Folder of the programs of these packages."""
    _needs("npm", name)

    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        _run(["npm", "install", "--no-save", "--prefix", folder, *packages], name)

    return _once(name, json.dumps(packages), make) / "node_modules" / ".bin"


def rust_program(name: str, source: Path) -> Path:
    """Folder of the programs of a package, built for release. Not built in place: it would leave its lock there."""
    _needs("cargo", name)

    def make(folder: Path) -> None:
        shutil.copytree(source, folder)
        _run(["cargo", "build", "--release", "--manifest-path", folder / "Cargo.toml"], name)

    return _once(name, _content(source), make) / "target" / "release"


def go_program(name: str, module: str, source: Path, *, without: Sequence[str] = ()) -> Path:
    """Our program as a command of somebody's module, whose inner packages it needs: built in a copy of the module.

    `without` names modules that no registry has and that are not needed for it.
    """
    _needs("go", name)

    def make(folder: Path) -> None:
        downloaded = _output(["go", "mod", "download", "-json", module], name, CACHE)
        shutil.copytree(json.loads(downloaded)["Dir"], folder)
        for path in (folder, *folder.rglob("*")):
            path.chmod(path.stat().st_mode | WRITABLE)
        shutil.copytree(source, folder / "cmd" / name)
        edits = [f"-drop{what}={each}" for each in without for what in ("replace", "require")]
        if edits:
            _output(["go", "mod", "edit", *edits], name, folder)
        _run(["go", "build", "-o", folder / name, f"./cmd/{name}"], name, folder)

    return _once(name, json.dumps([module, *without, _content(source)]), make) / name


def _once(name: str, recipe: str, make: Callable[[Path], None]) -> Path:
    """The folder made by this recipe. One that was begun and not finished is made anew."""
    folder = CACHE / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    complete = folder.with_suffix(".complete")
    if not complete.exists():
        say(f"{name}: getting it from its registry")
        CACHE.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        make(folder)
        complete.touch()
    return folder


def _content(source: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(source.iterdir()))


def _needs(tool: str, name: str) -> None:
    if shutil.which(tool) is None:
        raise Unavailable(f"{name} needs {tool}, which is not installed")


def _run(argv: Sequence[str | Path], name: str, folder: Path | None = None) -> None:
    try:
        run_with_progress(argv, name, progress=lambda line: line[:100], cwd=folder)
    except Failure as failure:
        raise Unavailable(str(failure).strip().rpartition("\n")[2]) from None


def _output(argv: Sequence[str | Path], name: str, folder: Path) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{name}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
