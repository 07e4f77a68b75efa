"""The feature table: it is what its source says, each test on it is there, and what shows nothing is found."""

import os
from pathlib import Path

import pytest
from features import ITEMS, PAGE, found, page, results
from features.__main__ import closing, wrong
from features.items import Area, Item, Malformed, load, named_tests
from features.results import Result

ITEM = """title = "Steps"

[[item]]
text = "A step is a step."
from = { dbos = "3-5, 9" }
tests = ["tests/unit/test_a.py::test_b"]
"""


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page.render(load(ITEMS)), "`make features` writes it"


def test_no_item_is_without_a_test() -> None:
    assert [item.text for area in load(ITEMS) for item in area.items if not item.tests] == []


def test_every_test_that_is_named_is_there() -> None:
    assert found.absent(named_tests(load(ITEMS))) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ITEM.replace('title = "Steps"', ""), "a title and items"),
        (ITEM + "note =", "a.toml: "),
        (ITEM.replace("text", "txt"), "text is missing"),
        (ITEM + 'also = ""', "there is no also"),
        (ITEM.replace("a step.", "a step"), "a sentence in one line"),
        (ITEM.replace("is a step.", "is | a step."), "a sentence in one line"),
        (ITEM + 'note = "no sentence"', "a sentence in one line"),
        (ITEM.replace("dbos", "nobody"), "there is no guide nobody"),
        (ITEM.replace("3-5, 9", "three"), "are no lines"),
        (ITEM.replace("test_a.py::test_b", "test_a.py"), "is no test"),
        (ITEM.replace('_b"]', '_b", "tests/unit/test_a.py::test_b"]'), "a test stands there twice"),
        (ITEM + ITEM.partition("\n\n")[2], "Steps: A step is a step. stands there twice"),
    ],
)
def test_what_is_no_item_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(Malformed, match=said.replace(".", r"\.")):
        load(tmp_path)


def test_a_test_is_found_by_its_name_alone(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("async def test_b(): ...\nclass TestC:\n    def test_d(self): ...\n")
    gone = ["test_a.py::test_d", "test_e.py::test_b"]
    assert found.absent(["test_a.py::test_b", "test_a.py::TestC::test_d", *gone], tmp_path) == gone


def test_pytest_says_which_tests_there_are_and_which_its_marks_skip(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_a.py").write_text(
        "import pytest\n"
        "def test_runs(): ...\n"
        "@pytest.mark.skip\ndef test_skipped(): ...\n"
        "@pytest.mark.skipif(True, reason='x')\ndef test_skipped_here(): ...\n"
        "@pytest.mark.parametrize('x', [1, pytest.param(2, marks=pytest.mark.skip)])\ndef test_in_part(x): ...\n"
    )
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    skipped, trouble = found.collected(["test_a.py::test_runs", "test_b.py::test_gone"], tmp_path)
    expected = {"runs": False, "skipped": True, "skipped_here": True, "in_part": False}
    assert skipped == {f"test_a.py::test_{name}": value for name, value in expected.items()}
    assert trouble == ""
    _, trouble = found.collected(["test_a.py::test_runs", "test_broken.py::test_x"], tmp_path)
    assert "no_such_module" in trouble


CASES = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_good[1]"/>
<testcase classname="tests.test_a" name="test_good[2]"/>
<testcase classname="tests.test_a" name="test_bad[1]"><failure/></testcase>
<testcase classname="tests.test_a" name="test_bad[2]"/>
<testcase classname="tests.test_a" name="test_broken"><error/></testcase>
<testcase classname="tests.test_a" name="test_in_part[1]"><skipped/></testcase>
<testcase classname="tests.test_a" name="test_in_part[2]"/>
</testsuite></testsuites>"""


def test_what_became_of_a_test_is_that_of_all_its_cases(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("")
    (tmp_path / "one.xml").write_text(CASES)
    tests = [f"tests/test_a.py::test_{name}" for name in ("good", "bad", "broken", "in_part", "new")]
    expected = [Result.PASSED, Result.FAILED, Result.FAILED, Result.SKIPPED, Result.UNKNOWN]
    assert list(results.last(tests, tmp_path, tmp_path).values()) == expected


def test_a_test_that_one_tier_skips_and_another_runs_has_run(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("")
    (tmp_path / "one.xml").write_text(CASES)
    (tmp_path / "two.xml").write_text(CASES.replace("<skipped/>", "").replace("<failure/>", ""))
    (tmp_path / "cut.xml").write_text(CASES[:100])
    tests = ["tests/test_a.py::test_in_part", "tests/test_a.py::test_bad"]
    assert list(results.last(tests, tmp_path, tmp_path).values()) == [Result.PASSED, Result.FAILED]


def test_a_result_from_before_the_last_change_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("")
    (tmp_path / "one.xml").write_text(CASES)
    os.utime(tmp_path / "one.xml", (1, 1))
    test = "tests/test_a.py::test_good"
    assert results.last([test], tmp_path, tmp_path) == {test: Result.UNKNOWN}


def test_an_item_is_missing_without_a_test_or_with_one_that_shows_nothing() -> None:
    tests = ("good", "gone", "skipped", "failed", "new")
    last = {"good": Result.PASSED, "failed": Result.FAILED, "skipped": Result.UNKNOWN, "new": Result.UNKNOWN}
    problems = wrong(tests, {"good": False, "skipped": True, "failed": False, "new": False}, last)
    assert set(problems) == {"gone", "skipped", "failed"}
    items = [Item(f"{test}.", {}, (test,)) for test in tests]
    lines, shown = closing(
        [Area("Steps", (*items, Item("empty.", {}, ()), Item("both.", {}, ("good", "gone"))))], problems
    )
    assert shown == 2
    assert [line.partition("Steps: ")[2] for line in lines] == [
        "gone. (gone is not there)",
        "skipped. (skipped is skipped)",
        "failed. (failed failed when it was last run)",
        "empty. (no test)",
        "both. (gone is not there)",
    ]


def test_what_differs_stands_with_its_item_and_at_the_end() -> None:
    text = page.render([Area("Steps", (Item("A step.", {"dbos": "3"}, ("tests/a.py::test_b_c",), "Another one."),))])
    assert "| A step. **Here:** Another one. | DBOS 3 | [b c](../../tests/a.py) |" in text
    assert text.endswith("## What differs\n\n- Steps: A step. **Here:** Another one.\n")
