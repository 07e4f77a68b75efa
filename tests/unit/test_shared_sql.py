"""Statements that must say the same in two files, as SQL has no way to share it."""

import re

from perdure.store.statements import sql


def part(statement: str, first: str, last: str) -> str:
    """From `first` up to `last`, whatever the parameters are called and wherever its lines end."""
    text = statement[statement.index(first) :]
    return " ".join(re.sub(r"\$\d+", "$", text[: text.index(last)]).split())


def test_the_small_statement_of_the_journal_tests_ownership_as_the_whole_one() -> None:
    small, whole = sql("journal_steps"), sql("journal_commit")
    assert part(small, "WITH own", "), steps") == part(whole, "WITH own", "), fresh")


def test_the_small_statement_of_the_journal_writes_steps_as_the_whole_one() -> None:
    small, whole = sql("journal_steps"), sql("journal_commit")
    assert part(small, "), steps AS", ")\nSELECT own.run") == part(whole, "), steps AS", "), ending AS")
