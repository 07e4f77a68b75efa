"""The blocks of a page as a reader at a terminal would run them: each command, and what the page shows below it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.mdblocks import ROOT, Block

SECONDS = 100.0
ANYTHING = "…"


@dataclass(frozen=True)
class Terminal:
    """A folder and what is set in it. Python and `perdure` are those that run the tests."""

    folder: Path
    env: Mapping[str, str]

    def run(self, block: Block) -> str:
        """Run a block; what it said. Fails the test where a command fails, or says something else than the page."""
        if block.kind == "file":
            target = self.folder / block.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)
            return ""
        commands = block.commands if block.language == "console" else [(block.text, "")]
        said = ""
        for command, shown in commands:
            done = self.ask(command)
            assert done.returncode == 0, f"{block.place}: $ {command}\n{done.stdout}{done.stderr}"
            assert says(done.stdout, shown), f"{block.place}: $ {command}\nsaid:\n{done.stdout}\nshown:\n{shown}"
            said += done.stdout
        return said

    def ask(self, command: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        modules = os.pathsep.join([str(self.folder), str(ROOT / "worker_image")])
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": modules, "PATH": path, **self.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


def says(output: str, shown: str) -> bool:
    """Whether the lines of a page are those of the output: `…` in a line is anything, alone it is any lines. A page
    that shows nothing says nothing about it."""
    if not shown.strip():
        return True
    pattern = ""
    for line in shown.rstrip("\n").split("\n"):
        if line == ANYTHING:
            pattern += "(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.split(ANYTHING)) + " *\n"
    return re.fullmatch(pattern + "\n*", output if output.endswith("\n") else f"{output}\n") is not None
