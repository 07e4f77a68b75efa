"""docs/protocol.md names rules, statements and tests: all of them are there, and none is missing on the page."""

import ast
import re
from pathlib import Path

import pytest

from tests.model.database import RULES

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/protocol.md").read_text()
SQL = ROOT / "worker_image/perdure/store/sql"
ROWS = re.findall(r"^\| (R\d+|sweep) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, flags=re.MULTILINE)
NOT_IN_THE_MODEL = {"R14", "R15"}


def test_the_table_has_every_rule_once() -> None:
    assert [row[0] for row in ROWS] == [*(f"R{number}" for number in range(1, 22)), "sweep"]
    assert set(RULES) == {row[0] for row in ROWS} - NOT_IN_THE_MODEL


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_statements_and_tests_of_a_rule_exist(row: tuple[str, ...]) -> None:
    rule, _, statements, tests, model = row
    named = re.findall(r"`(\w+)`", statements)
    assert named or statements.startswith("(none")
    assert [name for name in named if not (SQL / f"{name}.sql").is_file()] == []
    tried = re.findall(r"`([^`]+)::(\w+)`", tests)
    assert tried
    for file, test in tried:
        defined = ast.walk(ast.parse((ROOT / file).read_text()))
        names = {node.name for node in defined if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert test in names, f"{rule}: there is no {test} in {file}"
    assert (rule in NOT_IN_THE_MODEL) == model.startswith("not in the model")


def test_files_on_the_page_exist() -> None:
    for name in re.findall(r"`(tests/[\w/.]+|worker_image/[\w/]+)`", PAGE):
        assert (ROOT / name).exists(), name
