"""WorkflowSignals into inboxes: what the watch and the resync have seen, and the reconcile of one signal.

Each message is delivered once whatever dies in between: its key makes it the same one, and the status that says so is
written after it is durable. A signal whose Workflow is not there is looked at again when one of that name appears.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from perdure.resources.kinds import WORKFLOW, WORKFLOW_SIGNAL
from perdure.store import signals as store
from perdure.store import wakes
from perdure.telemetry.logs import get_logger

from perdure_operator.control.database import Database
from perdure_operator.control.keys import Key
from perdure_operator.control.notify import Notifier
from perdure_operator.control.workqueue import Again
from perdure_operator.kube.client import Client
from perdure_operator.kube.errors import ApiRefused
from perdure_operator.kube.status import StatusWriter
from perdure_operator.plan.signal import (
    RECHECK,
    Answer,
    Deliver,
    Say,
    decide,
    outcome,
    read_signal,
    settled,
    status_of,
)

log = get_logger(__name__)


class Signals:
    """Delivers signals. `enqueue` puts a key into the work queue."""

    def __init__(
        self,
        *,
        client: Client,
        database: Database,
        writer: StatusWriter,
        notifier: Notifier,
        enqueue: Callable[[Key], None],
    ) -> None:
        self._client = client
        self._database = database
        self._writer = writer
        self._notifier = notifier
        self._enqueue = enqueue
        self._wanting: dict[tuple[str, str], set[Key]] = {}
        """Signals by the Workflow that they wait for."""
        self._wants: dict[Key, tuple[str, str]] = {}

    def offer(self, obj: Mapping[str, Any], *, deleted: bool = False) -> None:
        """Take notice of a signal, as the watch or a list has it."""
        if not settled(obj):
            metadata = obj["metadata"]
            key = Key(metadata["namespace"], metadata["name"], metadata["uid"])
            if deleted:
                self._forget(key)
            else:
                self._enqueue(key)

    def applied(self, namespace: str, name: str) -> None:
        """There is something new about a Workflow: whoever waits for it is looked at."""
        for key in self._wanting.pop((namespace, name), ()):
            self._enqueue(key)

    def forget_all(self) -> None:
        """This process has not been leading: a list says what waits."""
        self._wanting.clear()
        self._wants.clear()

    async def reconcile(self, key: Key) -> Again | None:
        """Deliver one signal, or say why not. Repeating it changes nothing."""
        obj = await self._read(WORKFLOW_SIGNAL.path(key.namespace, key.name))
        if obj is None or obj["metadata"]["uid"] != key.uid or settled(obj):
            self._forget(key)
            return None
        signal = read_signal(obj)
        if isinstance(signal, Say):
            await self._say(key, obj, signal, None)
            return None
        name = signal.spec.workflow_name
        # Wanted before it is looked for: one that is applied meanwhile brings the signal back.
        self._want(key, name)
        decided = decide(signal, await self._read(WORKFLOW.path(key.namespace, name)))
        run_id = decided.run_id if isinstance(decided, Deliver) else None
        said = outcome(name, await self._deliver(decided)) if isinstance(decided, Deliver) else decided
        await self._say(key, obj, said, run_id)
        if not said.again:
            self._forget(key)
        return Again(RECHECK) if said.again and run_id is not None else None

    async def _deliver(self, message: Deliver) -> Answer:
        async with self._database.connection("signal") as connection:
            sent = await store.send(connection, message.run_id, message.topic, message.key, message.value)
            woken = []
            if sent.has_it:
                told = wakes.Message(message.run_id, message.topic, message.key)
                woken = await wakes.announce(connection, [told], [])
        for each in woken:
            if each.ready:
                self._notifier.ready(each.namespace, each.pool)
        return Answer(sent.status, sent.has_it)

    async def _say(self, key: Key, obj: Mapping[str, Any], said: Say, run_id: str | None) -> None:
        wanted = status_of(obj, said, run_id, datetime.now(UTC))
        if obj.get("status") == wanted:
            return
        log.info("signal", signal=str(key), reason=said.reason.value, message=said.message)
        await self._writer.write(WORKFLOW_SIGNAL, key.namespace, key.name, key.uid, wanted)

    async def _read(self, path: str) -> Mapping[str, Any] | None:
        try:
            obj: Mapping[str, Any] = await self._client.request("GET", path)
        except ApiRefused as error:
            if error.object_missing:
                return None
            raise
        return obj

    def _want(self, key: Key, name: str) -> None:
        self._wanting.setdefault((key.namespace, name), set()).add(key)
        self._wants[key] = (key.namespace, name)

    def _forget(self, key: Key) -> None:
        wanted = self._wants.pop(key, None)
        keys = self._wanting.get(wanted, set()) if wanted is not None else set()
        keys.discard(key)
        if wanted is not None and not keys:
            self._wanting.pop(wanted, None)
