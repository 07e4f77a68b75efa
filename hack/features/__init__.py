"""The feature table: each item of the guides that Perdure follows, with the tests that show it.

`items/*.toml` is the source, one file for each area, and docs/reference/feature-table.md is made from it. `make
features` writes the page anew and fails where a test is not there, is skipped or did not pass when it was last run.
A unit test holds the page to its source, and each test that is named to the tree.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ITEMS = Path(__file__).resolve().parent / "items"
PAGE = ROOT / "docs" / "reference" / "feature-table.md"
RESULTS = ROOT / ".cache" / "test"
"""Where `make test` leaves what became of each test."""
