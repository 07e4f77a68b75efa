"""No statement and no migration uses what Postgres 14, the oldest that is supported, does not know."""

import re
from pathlib import Path

import pytest

STORE = Path(__file__).parents[2] / "worker_image" / "perdure"
FILES = sorted(STORE.rglob("*.sql"))

NEWER = {
    "15": r"merge\s+into|nulls\s+not\s+distinct|security_invoker|regexp_(count|like|instr|substr)|range_agg"
    r"|force_next_flush|set\s*\(\s*\w+\s*\(",
    "16": r"any_value|random_normal|is\s+json|json_(object|array|arrayagg|objectagg)\s*\(|pg_input_is_valid|date_add"
    r"|\b0[xob][0-9a-f_]+|\b\d+_\d+\b",
    "17": r"json_(table|query|value|exists|scalar|serialize)|merge_action|transaction_timeout|uuid_extract|to_bin"
    r"|login\s+on|random\s*\(\s*\d",
    "18": r"uuidv[47]|\bvirtual\b|returning\s+(with\s*\(|(old|new)\.)|without\s+overlaps|array_(sort|reverse)|casefold"
    r"|not\s+enforced",
}
"""What came with each version, as far as it tempts somebody who writes statements like ours."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_newer_than_the_oldest_version(path: Path) -> None:
    text = re.sub(r"--[^\n]*|'[^']*'", "", path.read_text()).lower()
    found = {version: match[0] for version, pattern in NEWER.items() if (match := re.search(pattern, text))}
    assert found == {}


@pytest.mark.parametrize(
    "text", ["MERGE INTO t", "UNIQUE NULLS NOT DISTINCT", "any_value(x)", "uuidv7()", "RETURNING old.id", "1_000"]
)
def test_the_check_would_notice(text: str) -> None:
    assert any(re.search(pattern, text.lower()) for pattern in NEWER.values())
