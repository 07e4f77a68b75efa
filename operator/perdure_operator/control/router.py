"""Where each event of the watch goes: Workflows to the intake, signals to theirs, the rest into the cache, keys into
the queues.

Runs on the working loop for every event of the cluster that concerns us, so it does nothing but that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.telemetry.logs import get_logger

from perdure_operator.control.cache import Cache, Entry
from perdure_operator.control.intake import Intake
from perdure_operator.control.keys import Key, PoolKey
from perdure_operator.control.signals import Signals
from perdure_operator.control.watch import PODS, POOLS, SIGNALS, WORKFLOWS, Event

log = get_logger(__name__)

CHILD_SECONDS = 0.3
"""How long changes of a pool's Deployments and pods are gathered before the pool is looked at: a rollout makes many."""


class Router:
    """`look_at_pool` takes a delay in seconds."""

    def __init__(
        self,
        cache: Cache,
        intake: Intake,
        signals: Signals,
        look_at_pool: Callable[[PoolKey, float], None],
        look_at_pod: Callable[[Key], None],
    ) -> None:
        self._cache = cache
        self._intake = intake
        self._signals = signals
        self._look_at_pool = look_at_pool
        self._look_at_pod = look_at_pod

    def take(self, event: Event) -> None:
        """Called once for every event. Never raises: an object of an unknown shape ends here, in the log."""
        try:
            if event.kind == WORKFLOWS:
                self._intake.offer(event.obj, deleted=event.deleted)
                if not event.deleted:
                    self._signals.applied(event.obj["metadata"]["namespace"], event.obj["metadata"]["name"])
            elif event.kind == SIGNALS:
                self._signals.offer(event.obj, deleted=event.deleted)
            elif event.kind == POOLS:
                self._pool(event)
            else:
                self._child(event)
        except Exception:
            log.exception("an event of the watch was dropped", kind=event.kind)

    def _pool(self, event: Event) -> None:
        metadata = event.obj["metadata"]
        before = self._cache.pools.get(metadata["uid"])
        entry = self._cache.pools.drop(event.obj) if event.deleted else self._cache.pools.put(event.obj)
        if entry is None:
            return
        generation = metadata.get("generation")
        same = before is not None and before.value["metadata"].get("generation") == generation and not event.deleted
        # Our own status writes come back as events, too: the next look by time is soon enough for those.
        self._look_at_pool(PoolKey(entry.namespace, entry.name), CHILD_SECONDS if same else 0.0)

    def _child(self, event: Event) -> None:
        if event.kind == PODS:
            pod = self._cache.pods.drop(event.obj) if event.deleted else self._cache.pods.put(event.obj)
            if pod is not None and pod.value.worker_ended and not event.deleted:
                self._look_at_pod(Key(pod.namespace, pod.name, pod.value.uid))
            entry: Entry[Any] | None = pod
        else:
            shelf = self._cache.deployments
            entry = shelf.drop(event.obj) if event.deleted else shelf.put(event.obj)
        if entry is not None:
            self._look_at_pool(PoolKey(entry.namespace, entry.pool), CHILD_SECONDS)
