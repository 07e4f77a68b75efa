"""What the watch has seen: older news never win, and a deleted object does not come back."""

from __future__ import annotations

from typing import Any

from perdure_operator.control.cache import MOST_TOMBSTONES, Shelf


def shelf() -> Shelf[str]:
    return Shelf(lambda obj: str(obj["value"]), lambda obj: "orders")


def obj(version: int, value: str = "x", uid: str = "u", namespace: str = "shop") -> dict[str, Any]:
    metadata = {"uid": uid, "name": f"name-{uid}", "namespace": namespace, "resourceVersion": str(version)}
    return {"metadata": metadata, "value": value}


def test_an_older_list_changes_nothing() -> None:
    known = shelf()
    assert known.put(obj(9, "new")) is not None
    assert known.put(obj(8, "old")) is None
    assert known.of_pool("shop", "orders") == ["new"]
    assert known.put(obj(10, "newer")) is not None
    assert known.of_pool("shop", "orders") == ["newer"]


def test_a_deleted_object_does_not_come_back_with_an_older_list() -> None:
    known = shelf()
    known.put(obj(9))
    assert known.drop(obj(10)) is not None
    assert known.put(obj(9)) is None
    assert known.of_pool("shop", "orders") == []


def test_what_a_complete_list_lacks_is_forgotten_unless_it_came_later() -> None:
    known = shelf()
    known.put(obj(1, uid="missed"))
    known.put(obj(1, uid="elsewhere", namespace="other"))
    before = known.uids()
    known.put(obj(5, uid="listed"))
    known.put(obj(6, uid="later"))
    known.keep_only("shop", before, {"listed"})
    assert known.uids() == {"elsewhere", "listed", "later"}


def test_the_memory_of_deleted_objects_is_bounded() -> None:
    known = shelf()
    for number in range(MOST_TOMBSTONES + 5):
        known.drop(obj(1, uid=str(number)))
    assert known.put(obj(1, uid="0")) is not None
    assert known.put(obj(1, uid=str(MOST_TOMBSTONES))) is None


def test_pools_are_kept_apart() -> None:
    known = shelf()
    known.put(obj(1))
    assert known.of_pool("shop", "mails") == []
    assert known.of_pool("other", "orders") == []
    assert [entry.name for entry in known.of_namespace("shop")] == ["name-u"]
