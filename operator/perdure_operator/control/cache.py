"""What the watch has seen of pools and of what belongs to them, as facts, with stale news refused.

Filled by the watch and by the resync, read by `pools`, `waits` and `deaths`. Never the truth: every decision made
from it is repeated, and what cannot be undone is checked at the API server first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from perdure_operator.plan.deployments import Deployment, read_deployment
from perdure_operator.plan.manifests import POOL_LABEL
from perdure_operator.plan.pods import Pod, read_pod
from perdure_operator.plan.seen import resource_version

T = TypeVar("T")

MOST_TOMBSTONES = 10_000
"""Deleted objects that are remembered, so that an older list does not bring them back."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """One object: its place, the version in which it was seen, and its facts."""

    namespace: str
    name: str
    pool: str
    version: int
    value: T


class Shelf(Generic[T]):
    """The objects of one kind by UID."""

    def __init__(self, read: Callable[[Mapping[str, Any]], T], pool_of: Callable[[Mapping[str, Any]], str]) -> None:
        self._read = read
        self._pool_of = pool_of
        self._entries: dict[str, Entry[T]] = {}
        self._places: dict[tuple[str, str], dict[str, Entry[T]]] = {}
        self._gone: dict[str, None] = {}

    def put(self, obj: Mapping[str, Any]) -> Entry[T] | None:
        """Take in an object; None when what is known is newer."""
        metadata = obj["metadata"]
        uid, version = str(metadata["uid"]), resource_version(metadata)
        known = self._entries.get(uid)
        if uid in self._gone or (known is not None and known.version > version):
            return None
        entry = Entry(metadata["namespace"], metadata["name"], self._pool_of(obj), version, self._read(obj))
        self._forget(uid)
        self._entries[uid] = entry
        self._places.setdefault((entry.namespace, entry.pool), {})[uid] = entry
        return entry

    def drop(self, obj: Mapping[str, Any]) -> Entry[T] | None:
        """Forget an object that the server said was deleted."""
        uid = str(obj["metadata"]["uid"])
        self._gone[uid] = None
        while len(self._gone) > MOST_TOMBSTONES:
            del self._gone[next(iter(self._gone))]
        return self._forget(uid)

    def keep_only(self, namespace: str, known_before: Iterable[str], listed: set[str]) -> None:
        """Forget what was known before a complete list and is not in it: its deletion was missed."""
        for uid in set(known_before) - listed:
            entry = self._entries.get(uid)
            if entry is not None and entry.namespace == namespace:
                self._forget(uid)

    def uids(self) -> set[str]:
        """UIDs of all that is known."""
        return set(self._entries)

    def of_pool(self, namespace: str, pool: str) -> list[T]:
        """What belongs to a pool."""
        return [entry.value for entry in self._places.get((namespace, pool), {}).values()]

    def of_namespace(self, namespace: str) -> list[Entry[T]]:
        """Everything in a namespace."""
        return [entry for entry in self._entries.values() if entry.namespace == namespace]

    def everywhere(self) -> Iterable[Entry[T]]:
        """Everything that is known."""
        return self._entries.values()

    def _forget(self, uid: str) -> Entry[T] | None:
        entry = self._entries.pop(uid, None)
        if entry is not None:
            place = (entry.namespace, entry.pool)
            del self._places[place][uid]
            if not self._places[place]:
                del self._places[place]
        return entry

    def get(self, uid: str) -> Entry[T] | None:
        """One object."""
        return self._entries.get(uid)


class Cache:
    """Pools as objects, their Deployments and pods as facts."""

    def __init__(self) -> None:
        self.pools: Shelf[Mapping[str, Any]] = Shelf(lambda obj: obj, lambda obj: str(obj["metadata"]["name"]))
        self.deployments: Shelf[Deployment] = Shelf(read_deployment, _label)
        self.pods: Shelf[Pod] = Shelf(read_pod, _label)

    def pool(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The object of a pool, the newest when a deleted one of the name is still known."""
        found = self.pools.of_pool(namespace, name)
        return max(found, key=lambda obj: resource_version(obj["metadata"])) if found else None


def _label(obj: Mapping[str, Any]) -> str:
    return str((obj["metadata"].get("labels") or {}).get(POOL_LABEL, ""))
