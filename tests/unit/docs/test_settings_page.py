"""The page of settings tells of every variable that the code reads, and of no other."""

import re
from pathlib import Path

from perdure.store.pool import DATABASE_VARIABLES
from perdure.worker.settings import variables as of_worker
from perdure_operator import reference
from perdure_operator.settings import strangers
from perdure_operator.settings import variables as of_operator

ROOT = Path(__file__).resolve().parents[3]
PREFIXES = {"PERDURE_", "PERDURE_OPERATOR_", "PERDURE_DATABASE_"}
KNOWN = {each.name for each in (*of_worker(), *of_operator(), *DATABASE_VARIABLES)}


def test_the_page_equals_the_declarations() -> None:
    page = ROOT / "docs" / "reference" / "settings.md"
    assert page.read_text(encoding="utf-8") == reference.render(), "run: make generate"


def test_no_variable_stands_twice() -> None:
    names = [each.name for each in (*of_worker(), *of_operator(), *DATABASE_VARIABLES)]
    assert len(names) == len(set(names))


def test_every_variable_that_stands_in_the_code_is_declared() -> None:
    named = set()
    for folder in ("worker_image", "operator"):
        for file in (ROOT / folder).rglob("*.py"):
            named |= set(re.findall(r"\bPERDURE_[A-Z_]*[A-Z]\b", file.read_text(encoding="utf-8")))
    # The last is set for the script that sets the password of an embedded Postgres; the one before it is read by the
    # plugin of pytest and stands in the guide to testing.
    tools = {
        "PERDURE_TEST",
        "PERDURE_CLUSTER",
        "PERDURE_IMAGES",
        "PERDURE_CACHE",
        "PERDURE_UPDATE_GOLDEN",
        "PERDURE_TEST_DATABASE_URL",
        "PERDURE_PASSWORD_FILE",
    }
    assert named - KNOWN - tools == set()


def test_the_operator_says_what_nobody_reads_with_the_nearest_name() -> None:
    env = {"PERDURE_OPERATOR_RESYNC_SECOND": "9", "PERDURE_OPERATOR_POD_NAME": "p", "PERDURE_DATABASE_URL": "x"}
    (note,) = strangers(env)
    assert note.endswith("is PERDURE_OPERATOR_RESYNC_SECONDS meant?")
