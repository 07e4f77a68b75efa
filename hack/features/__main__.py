"""`make features`: write the page, and say which items nothing shows. Exit code 1 if there is one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from features import ITEMS, PAGE, found, page, results
from features.items import Area, Malformed, load, named_tests
from features.results import Result


def main() -> int:
    try:
        areas = load(ITEMS)
    except Malformed as error:
        print(f"hack/features/items/{error}", file=sys.stderr)
        return 2
    tests = named_tests(areas)
    skipped, trouble = found.collected(tests)
    there = [test for test in tests if test in skipped]
    last = results.last(there)
    if trouble:
        print(trouble)
    problems = wrong(tests, skipped, last)
    lines, shown = closing(areas, problems)
    print(*lines, sep="\n")
    known = sum(result is Result.PASSED for result in last.values())
    print(f"{len(tests)} tests, {known} seen passing in .cache/test; the others were not run here since they changed")
    PAGE.write_text(page.render(areas))
    total = sum(len(area.items) for area in areas)
    print(f"{total} items, {shown} shown, {total - shown} missing")
    return 0 if shown == total and not trouble else 1


def wrong(tests: Sequence[str], skipped: Mapping[str, bool], last: Mapping[str, Result]) -> dict[str, str]:
    """What is wrong with each test that shows nothing."""
    problems = {}
    for test in tests:
        if test not in skipped:
            problems[test] = "is not there"
        elif skipped[test]:
            problems[test] = "is skipped"
        elif last[test] in (Result.FAILED, Result.SKIPPED):
            problems[test] = f"{last[test].value} when it was last run"
    return problems


def closing(areas: Sequence[Area], problems: Mapping[str, str]) -> tuple[list[str], int]:
    """A line for each item that is missing, and how many are shown."""
    lines, shown = [], 0
    for area in areas:
        for item in area.items:
            reasons = [f"{test} {problems[test]}" for test in item.tests if test in problems]
            if not item.tests:
                reasons = ["no test"]
            if reasons:
                lines.append(f"missing: {area.title}: {item.text} ({'; '.join(reasons)})")
            shown += not reasons
    return lines, shown


if __name__ == "__main__":
    raise SystemExit(main())
