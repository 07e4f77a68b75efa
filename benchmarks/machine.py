"""What the kernel says: processor time and memory of processes, whether the machine is idle, what it is."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

IDLE_SHARE = 0.10
"""Busier than this, something else is at work: a poll of a sleeping server takes far less."""

IDLE_SECONDS = 2.0
"""For how long it must be idle: longer than the pauses of whatever works in fits and starts."""


@dataclass(frozen=True)
class Busy:
    """Seconds of processor time since boot, over all cores."""

    used: float
    stolen: float
    total: float


def usage(groups: Mapping[str, Sequence[int]]) -> tuple[dict[str, float], dict[str, float]]:
    """Processor seconds so far and megabytes in use of each group of processes.

    With a process go its living descendants, and the processor time of all children that any of these has outlived.
    """
    stats = {pid: fields for pid in _pids() if (fields := _stat(pid)) is not None}
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[1]), []).append(pid)
    processor, memory = {}, {}
    for name, roots in groups.items():
        found: set[int] = set()
        todo = list(roots)
        while todo:
            pid = todo.pop()
            if pid in stats and pid not in found:
                found.add(pid)
                todo += children.get(pid, [])
        processor[name] = sum(int(field) for pid in found for field in stats[pid][11:15]) / TICKS
        memory[name] = sum(int(stats[pid][21]) for pid in found) * PAGE / 1024**2
    return processor, memory


def busy() -> Busy:
    user, nice, system, idle, waiting, irq, soft, stolen = map(int, (PROC / "stat").read_text().split()[1:9])
    used = user + nice + system + irq + soft + stolen
    return Busy(used / TICKS, stolen / TICKS, (used + idle + waiting) / TICKS)


class Others:
    """What all but one process and its descendants use of the machine, from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = self._now()

    def percent(self) -> float:
        """So far, of all cores; what the host has taken away counts as well."""
        before, now = self._before, self._now()
        return max(0.0, (now[0] - before[0]) / max(1 / TICKS, now[1] - before[1]) * 100)

    def _now(self) -> tuple[float, float]:
        own, _ = usage({"own": [self._pid]})
        all_of_it = busy()
        return all_of_it.used - own["own"], all_of_it.total


async def until_idle(limit: float) -> float:
    """Wait until little is going on, at most `limit` seconds; the share of the processors that was in use at last."""
    deadline = time.monotonic() + limit
    share = 0.0
    while limit > 0:
        before = busy()
        await asyncio.sleep(IDLE_SECONDS)
        after = busy()
        share = (after.used - before.used) / (after.total - before.total)
        if share < IDLE_SHARE or time.monotonic() >= deadline:
            break
    return share


def facts() -> dict[str, Any]:
    """The machine as it goes into the results."""
    return {
        "cores": os.cpu_count(),
        "processor": _first("cpuinfo", "model name"),
        "memory_gib": round(int(_first("meminfo", "MemTotal").split()[0]) / 1024**2, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _first(file: str, name: str) -> str:
    lines: Iterable[str] = (PROC / file).read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "0")


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """The fields after the name, which may hold anything. None: the process is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()
