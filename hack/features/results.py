"""What became of tests when they were last run here: the JUnit files that `make test` leaves."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from features import RESULTS, ROOT


class Result(Enum):
    """`UNKNOWN`: not run here since its file was last changed."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "was skipped"
    UNKNOWN = "unknown"


def last(tests: Iterable[str], folder: Path = RESULTS, root: Path = ROOT) -> dict[str, Result]:
    """The last result of each test. One that several tiers run must fail in none and run whole in one of them."""
    seen: dict[str, list[tuple[float, Result]]] = {}
    for path in sorted(folder.glob("*.xml")):
        written = path.stat().st_mtime
        for test, result in _results(path).items():
            seen.setdefault(test, []).append((written, result))
    answer = {}
    for test in tests:
        file, _, function = test.partition("::")
        changed = (root / file).stat().st_mtime
        place = ".".join([file.removesuffix(".py").replace("/", "."), *function.split("::")])
        results = {result for written, result in seen.get(place, ()) if written >= changed}
        answer[test] = next(
            (result for result in (Result.FAILED, Result.PASSED, Result.SKIPPED) if result in results), Result.UNKNOWN
        )
    return answer


def _results(path: Path) -> dict[str, Result]:
    """Dotted name of each function → what became of all its cases together."""
    together: dict[str, Result] = {}
    try:
        cases = ET.parse(path).getroot().iter("testcase")
    except ET.ParseError:  # a run that was cut off tells nothing
        return {}
    for case in cases:
        test = f"{case.get('classname')}.{(case.get('name') or '').partition('[')[0]}"
        results = {together.get(test, Result.PASSED), _result(case)}
        together[test] = next(result for result in (Result.FAILED, Result.SKIPPED, Result.PASSED) if result in results)
    return together


def _result(case: ET.Element) -> Result:
    if case.find("failure") is not None or case.find("error") is not None:
        return Result.FAILED
    return Result.PASSED if case.find("skipped") is None else Result.SKIPPED
