"""Keys made of values: equal values, equal key, wherever and whenever."""

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from perdure import idempotency
from perdure.errors import EncodingFailed
from pydantic import BaseModel

PACKAGES = Path(__file__).parents[2] / "worker_image"


class Order(BaseModel):
    id: int
    tags: set[str]


@dataclass
class Item:
    name: str
    colours: frozenset[str]


def test_a_key_stays_what_it_is() -> None:
    """Rows of earlier releases must be found again."""
    assert idempotency.key("charge", 1) == "2607d9516d9a16357ff9fe034647af754b9268c55783fd53545afd954510f909"


def test_a_key_is_the_same_in_every_process() -> None:
    """Where strings have other hashes, and sets another order."""
    code = f"""import sys; sys.path.insert(0, {str(PACKAGES)!r})
from perdure import idempotency
print(idempotency.key("charge", {{"b": {{"x", "y", "zz", "w"}}, "a": [1, None]}}))"""
    keys = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, text=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y"}, {"y", "x"}),
        ((1, 2), [1, 2]),
        (Order(id=1, tags={"a", "b"}), {"id": 1, "tags": ["a", "b"]}),
        (Item("a", frozenset({"r", "g"})), Item("a", frozenset({"g", "r"}))),
    ],
)
def test_equal_values_make_one_key(one: Any, other: Any) -> None:
    assert idempotency.key(one) == idempotency.key(other)


def test_other_values_make_another_key() -> None:
    values: list[tuple[Any, ...]] = [
        (1,),
        ("1",),
        (True,),
        (1.5,),
        (None,),
        ("",),
        (1, 2),
        (12,),
        ((1, 2),),
        ([[1], 2],),
        ([1, [2]],),
        ({"a": 1},),
        ({"a": {"a": 1}},),
        ("a", 1),
        ({"1": "a"}, {"2": "b"}),
        ({"1": "a", "2": "b"},),
        (datetime(2026, 1, 1, tzinfo=UTC),),
        (b"1",),
        (",",),
        ("'",),
    ]
    assert len({idempotency.key(*parts) for parts in values}) == len(values)


@pytest.mark.parametrize("part", [object(), float("nan"), "\0", iter([1])])
def test_what_has_no_json_makes_no_key(part: Any) -> None:
    with pytest.raises(EncodingFailed, match="a part of a key"):
        idempotency.key("x", part)


def test_a_key_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one part"):
        idempotency.key()
