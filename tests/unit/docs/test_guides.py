"""The guides that people are promised are there, and the first page of the docs leads to every page."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
LINKS = set(re.findall(r"\]\(([\w/.-]+)\)", (DOCS / "README.md").read_text()))

PROMISED = {
    "tutorial.md",
    "how-to/idempotency.md",
    "how-to/sagas.md",
    "how-to/fan-out.md",
    "how-to/versions.md",
    "how-to/testing.md",
    "how-to/from-celery.md",
    "how-to/from-temporal.md",
    "how-to/from-dbos.md",
}
"""A tutorial, the subjects that are easily done wrong, and the ways here from elsewhere."""

PAGES = sorted(
    page.relative_to(DOCS).as_posix() for folder in ("how-to", "reference") for page in (DOCS / folder).glob("*.md")
)


@pytest.mark.parametrize("page", sorted(PROMISED))
def test_a_promised_guide_is_there(page: str) -> None:
    text = (DOCS / page).read_text()
    assert text.startswith("# ")
    assert "```" in text, "a guide shows how"


def test_the_first_page_leads_to_every_page() -> None:
    assert [page for page in sorted({*PAGES, "tutorial.md"}) if page not in LINKS] == []
