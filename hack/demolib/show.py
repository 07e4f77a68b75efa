"""What the demo prints: a heading for each act, the steps as they change, the commands it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

Status = Mapping[str, Any]

MARKS = {"Running": "▶", "Waiting": "◔", "Succeeded": "✔", "Failed": "✖", "Interrupted": "!"}


def heading(text: str) -> None:
    print(f"\n━━ {text}", flush=True)


def line(text: str) -> None:
    print(f"   {text}", flush=True)


def command(text: str, output: str) -> None:
    """A command and what it answered."""
    print(f"   $ {text}", flush=True)
    for each in output.rstrip().splitlines():
        print(f"   {each}", flush=True)


class Live:
    """Prints a run's changes: its phase, and each step when its phase changes."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._seen: dict[str, str] = {}

    def show(self, status: Status) -> None:
        ended = "finishedAt" in status
        if not ended:
            self._run(status)
        for step in status.get("steps", []):
            if step["phase"] in MARKS:
                again = f"attempt {step['attempts']}" if step.get("attempts", 1) > 1 else ""
                self._change(step["name"], f"{MARKS[step['phase']]} {step['name']:<20} {step['phase']:<10} {again}")
        if ended:
            self._run(status)

    def _run(self, status: Status) -> None:
        detail = status.get("waiting") or status.get("worker", {}).get("pod", "")
        self._change("", f"{status.get('phase', 'Pending'):<24} {detail}")

    def _change(self, what: str, text: str) -> None:
        if self._seen.get(what) != text:
            self._seen[what] = text
            print(f"   {time.monotonic() - self._started:6.1f}s  {'  ' if what else ''}{text.rstrip()}", flush=True)


def fail(text: str) -> None:
    print(f"\n✖ {text}", file=sys.stderr, flush=True)
