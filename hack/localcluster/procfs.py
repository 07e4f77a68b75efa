"""Facts about processes, from /proc: enough to end what we started, and nothing that merely looks like it."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class ProcessId:
    """A process id and the tick it began at: together they never name another process until the next boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """None when there is no such process, or only what is left of it until its parent looks."""
        try:
            # The name in parentheses may hold anything, so count from its end: state is field 3, start time 22.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] == "Z" else cls(pid, int(fields[19]))

    def is_alive(self) -> bool:
        return ProcessId.of(self.pid) == self


def command_line(pid: int) -> list[str]:
    """Empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def children(pid: int) -> list[int]:
    """Its children, whichever of its threads started them; none when it is gone."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in task.read_text().split()]
    return found
