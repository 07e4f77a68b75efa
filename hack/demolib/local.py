"""The demo where no cluster can be: the same Workflow file by `perdure dev`, with its worker killed and replaced."""

from __future__ import annotations

import subprocess
from pathlib import Path

from testrun import ROOT

from demolib import order, show

KILL_AT = "pack"
SHOWS = "the same files, models, checks, statements, worker program and projection to .status"
LACKS = "kubectl and the API server, the operator, pods and Helm"


def tell(python: Path, reason: str) -> list[str]:
    """Run it; gives what was not as promised."""
    show.heading("Without a cluster")
    show.line(f"No cluster on this machine: {reason}")
    show.line(f"So this shows {SHOWS}.")
    show.line(f"It cannot show {LACKS}.")
    target = order.EXAMPLE / "workflow.yaml"
    show.heading(f"perdure dev {target.relative_to(ROOT)} --kill-worker-at {KILL_AT}")
    argv: list[str | Path] = [python.parent / "perdure", "dev", target, "--kill-worker-at", KILL_AT]
    code = subprocess.run(argv, cwd=ROOT, check=False).returncode
    show.heading("Look further")
    show.line(".venv/bin/perdure dev --help")
    return [] if code == 0 else [f"perdure dev has ended with exit code {code}"]
