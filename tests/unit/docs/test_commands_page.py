"""The page of commands has what each says of itself."""

import re
from pathlib import Path

from perdure.cli import reference

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "commands.md"


def test_the_page_equals_the_commands() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.render(), "run: make generate"


def test_every_option_says_what_it_is() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", reference.render(), flags=re.MULTILINE)
    assert len(rows) > 15
    assert [what for what, text in rows if not text] == []
