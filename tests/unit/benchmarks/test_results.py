from pathlib import Path

from benchmarks import report, results
from benchmarks.figures import Figure
from benchmarks.part import Column, Part, table
from benchmarks.results import Line, PartResult, Results, Row, aggregate, merged

RUN = {
    "commit": "abc",
    "machine": {"cores": 2, "processor": "p", "memory_gib": 8, "system": "Linux", "python": "3"},
    "load_at_start": 0.1,
    "stolen_seconds": 0,
    "minutes": 40,
    "postgres": {"version": "18", "fsync": "on"},
}


def taken(run: str, size: str = "full", **parts: list[Row]) -> Results:
    return Results(size, {run: RUN}, {name: PartResult(run, aggregate(rows)) for name, rows in parts.items()})


def row(subject: str, case: str, **numbers: float) -> Row:
    return Row(subject, case, numbers)


def test_rounds_come_together_as_median_and_range() -> None:
    rows = [row("a", "x", rate=3.0), row("b", "x", rate=9.0), row("a", "x", rate=1.0), row("a", "x", rate=2.0)]
    first, second = aggregate(rows)
    assert (first.subject, first.figures["rate"]) == ("a", Figure(2.0, 1.0, 3.0, 3))
    assert (second.subject, second.figures["rate"]) == ("b", Figure(9.0, 9.0, 9.0, 1))


def test_a_note_is_kept_once() -> None:
    (line,) = aggregate([Row("a", "x", {}, "not there"), Row("a", "x", {}, "not there")])
    assert line == Line("a", "x", {}, "not there")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "latest.json"
    before = taken("one", drain=[row("a", "x", rate=1.0), Row("b", "y", {}, "left out")])
    results.write(before, [], path)
    assert results.read(path) == before


def test_results_of_another_format_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    assert results.read(path) is None
    path.write_text('{"measures": []}')
    assert results.read(path) is None


def test_parts_taken_again_replace_the_older_ones_and_the_others_stay() -> None:
    before = taken("one", drain=[row("a", "x", rate=1.0)], bare=[row("b", "y", rate=1.0)])
    found = merged(before, taken("two", drain=[row("a", "x", rate=2.0)]))
    assert {name: part.run for name, part in found.parts.items()} == {"drain": "two", "bare": "one"}
    assert set(found.runs) == {"one", "two"}
    assert not found.comparable(["drain", "bare"])
    assert set(merged(before, taken("two", drain=[], bare=[])).runs) == {"two"}


def test_a_quick_run_keeps_nothing_of_a_full_one() -> None:
    quick = taken("two", size="quick", drain=[])
    assert merged(taken("one", bare=[]), quick) == quick


def part(name: str = "drain", title: str = "Draining") -> Part:
    return Part(name, title, "How.", (Column("rate", "rate"), Column("never", "never")), None)  # type: ignore[arg-type]


def test_a_table_shows_medians_with_their_range_and_no_empty_column() -> None:
    lines = aggregate([row("a", "x", rate=1.0), row("a", "x", rate=3.0), Row("b", "y", {}, "it is | not\nthere")])
    assert part().table(lines).splitlines() == [
        "|     | case |       rate |                             |",
        "| --- | ---- | ---------: | --------------------------- |",
        "| a   | x    | 2 (1 to 3) |                             |",
        "| b   | y    |            | left out: it is / not there |",
    ]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = table([["a", "b"], ["long cell", "1"]], numeric=(1,)).splitlines()
    assert rows == ["| a         |   b |", "| --------- | --: |", "| long cell |   1 |"]


def test_the_page_of_the_docs_is_what_the_results_make() -> None:
    assert report.PAGE.read_text() == report.page(results.read(), report.written_notes())


def test_the_page_names_the_parts_that_failed() -> None:
    found = Results("full", {"one": RUN}, {"drain": PartResult("one", [], ["drain failed: it broke"], True)})
    page = report.page(found, "The goals were too high.\n")
    assert "- Note: drain failed: it broke." in page
    assert "2 cores (p)" in page
    assert page.index("The goals were too high.") > page.index("## Goals")
