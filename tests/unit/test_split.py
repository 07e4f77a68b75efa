"""A script is split at the semicolons that end its statements, and at no other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.store.scaffold import Part, parts
from perdure.store.split import split

PIECES = (
    "SELECT 1",
    "SELECT ';'",
    "SELECT 'it''s; so'",
    r"SELECT E'\';'",
    "SELECT 'a\\'",
    'SELECT 1 AS ";"',
    "-- a comment; with 'half a text\nSELECT 2",
    "SELECT /* ; ' */ 3",
    "DO $$ BEGIN PERFORM 1; END $$",
    "DO $do$ BEGIN PERFORM $$;$$; END $do$",
    "SELECT a$1$b FROM x$2$y",
    "SELECT $1, $2",
    "\n\nSELECT 1\n",
)


@pytest.mark.parametrize("piece", PIECES)
def test_a_statement_is_not_cut(piece: str) -> None:
    assert split(f"{piece};") == [piece]


@given(st.lists(st.sampled_from(PIECES)))
def test_joined_again_it_is_the_script(pieces: list[str]) -> None:
    script = "".join(f"{piece};" for piece in pieces)
    assert split(f"{script}\n") == pieces


@pytest.mark.parametrize("part", parts(), ids=lambda part: part.name)
def test_the_migrations_are_statements_to_the_last_sign(part: Part) -> None:
    text = part.text
    statements = split(text)
    assert "".join(f"{each};" for each in statements) + "\n" == text
    assert all(each.strip() for each in statements)


def test_a_statement_without_its_end_is_refused() -> None:
    with pytest.raises(ValueError, match="no semicolon ends 'SELECT 2'"):
        split("SELECT 1; SELECT 2")
