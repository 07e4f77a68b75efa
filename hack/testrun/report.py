"""What came of each tier, and the closing lines. The last one is read by programs: `N passed, M failed`."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster.console import duration


@dataclass(frozen=True)
class Result:
    """Counts of one tier. `note` says why something did not run, or where to look."""

    tier: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    note: str = ""
    asked: bool = True


def not_asked(tier: str) -> Result:
    return Result(tier, asked=False)


def unavailable(tier: str, reason: str, *, in_ci: bool, seconds: float = 0.0) -> Result:
    """A tier that could not run at all: a hole, so in CI a failure."""
    return Result(tier, failed=int(in_ci), skipped=int(not in_ci), seconds=seconds, note=f"SKIPPED: {reason}")


def read_junit(tier: str, path: Path, *, in_ci: bool, seconds: float, exit_ok: bool) -> Result:
    """Count what pytest wrote. No file, no test or an exit code that the counts do not explain is a failure."""
    if not path.exists():
        return Result(tier, failed=1, seconds=seconds, note="pytest did not get as far as its report")
    suites = list(ET.parse(path).getroot().iter("testsuite"))
    total, failures, errors, skipped = (
        sum(int(suite.get(name, "0")) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    reasons = sorted({skip.get("message", "") for suite in suites for skip in suite.iter("skipped")})
    failed = failures + errors
    # A test that passed and whose fixture then failed at its end is counted as one test and one error.
    passed = max(0, total - failed - skipped)
    note = "; ".join(reasons)
    if total == 0:
        return Result(tier, failed=1, seconds=seconds, note="no test was found")
    if passed == failed == 0:
        return unavailable(tier, note, in_ci=in_ci, seconds=seconds)
    if not exit_ok and failed == 0:
        failed, note = 1, "pytest failed outside the tests"
    return Result(tier, passed, failed, skipped, seconds, f"skipped: {note}" if skipped else note)


def closing_lines(results: Sequence[Result]) -> list[str]:
    """One line a tier, an empty one, the sum."""
    lines = [f"  {result.tier:<10} {_line(result)}".rstrip() for result in results]
    passed, failed, skipped = (
        sum(getattr(result, name) for result in results) for name in ("passed", "failed", "skipped")
    )
    last = f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")
    return ["", *lines, "", last]


def _line(result: Result) -> str:
    if not result.asked:
        return "not asked for"
    if result.note.startswith("SKIPPED"):
        return result.note
    counts = [f"{result.passed} passed"]
    counts += [f"{result.failed} failed"] if result.failed else []
    counts += [f"{result.skipped} skipped"] if result.skipped else []
    return f"{', '.join(counts):<32} {duration(result.seconds):>7}  {result.note}"
