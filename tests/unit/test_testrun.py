"""The runner behind `make test`: what is counted, and what its last line says."""

from pathlib import Path

import pytest
from testrun import report
from testrun.report import Result

SUITE = '<testsuites><testsuite tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}">{cases}'
END = "</testsuite></testsuites>"


def _junit(folder: Path, cases: str = "", **counts: int) -> Path:
    filled = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0, **counts}
    path = folder / "junit.xml"
    path.write_text(SUITE.format(cases=cases, **filled) + END)
    return path


def test_tests_are_counted(tmp_path: Path) -> None:
    path = _junit(tmp_path, tests=10, failures=1, errors=1, skipped=2)
    result = report.read_junit("store", path, in_ci=False, seconds=3, exit_ok=False)
    assert (result.passed, result.failed, result.skipped) == (6, 2, 2)


def test_no_report_is_a_failure(tmp_path: Path) -> None:
    assert report.read_junit("store", tmp_path / "none", in_ci=False, seconds=0, exit_ok=False).failed == 1


def test_no_test_is_a_failure(tmp_path: Path) -> None:
    assert report.read_junit("store", _junit(tmp_path), in_ci=False, seconds=0, exit_ok=True).failed == 1


def test_a_crash_after_the_tests_is_a_failure(tmp_path: Path) -> None:
    result = report.read_junit("store", _junit(tmp_path, tests=3), in_ci=False, seconds=0, exit_ok=False)
    assert (result.passed, result.failed) == (3, 1)


@pytest.mark.parametrize("in_ci", [False, True])
def test_a_tier_in_which_all_was_skipped_is_named_and_fails_in_ci(tmp_path: Path, in_ci: bool) -> None:
    cases = '<testcase name="a"><skipped message="store tier: no Postgres"/></testcase>'
    path = _junit(tmp_path, cases, tests=1, skipped=1)
    result = report.read_junit("store", path, in_ci=in_ci, seconds=0, exit_ok=True)
    assert (result.failed, result.skipped) == ((1, 0) if in_ci else (0, 1))
    assert "  store      SKIPPED: store tier: no Postgres" in report.closing_lines([result])


@pytest.mark.parametrize(
    ("results", "last"),
    [
        ([Result("unit", passed=3)], "3 passed, 0 failed"),
        ([Result("unit", passed=3), Result("store", failed=1)], "3 passed, 1 failed"),
        ([Result("unit", passed=3, skipped=1), report.not_asked("store")], "3 passed, 0 failed, 1 skipped"),
    ],
)
def test_the_last_line_is_the_sum(results: list[Result], last: str) -> None:
    assert report.closing_lines(results)[-1] == last


def test_a_tier_that_was_not_asked_for_says_so() -> None:
    assert "  store      not asked for" in report.closing_lines([report.not_asked("store")])
