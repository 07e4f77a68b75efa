"""Workflows into rows: what the watch and the resync have seen, and the reconcile of one Workflow.

`offer` is called for every event and costs a few comparisons; only an object whose generation this process has not
taken in yet goes into the queue. Keeps invariant 7 (a broken spec ends at its own object) and the rule that status
is never read as truth: what is taken in is remembered here, not looked up there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.model.rows import NewRun
from perdure.model.states import CancelMode
from perdure.resources.acceptance import Rejected
from perdure.resources.common import Metadata
from perdure.resources.kinds import WORKFLOW
from perdure.resources.projection import project_rejected
from perdure.store import runs, status
from perdure.telemetry.logs import get_logger

from perdure_operator.control.database import Database
from perdure_operator.control.keys import Key
from perdure_operator.control.notify import Notifier
from perdure_operator.control.statuses import Statuses
from perdure_operator.control.workqueue import Again
from perdure_operator.kube.client import Client
from perdure_operator.kube.errors import ApiRefused
from perdure_operator.kube.events import EventPoster
from perdure_operator.kube.status import StatusWriter
from perdure_operator.plan.events import EventReason, run_notice, workflow_notice
from perdure_operator.plan.run import (
    End,
    Forget,
    KeepOld,
    Refuse,
    Store,
    changed_definition,
    decide,
    has_ended,
    refuse,
    report_at_once,
)
from perdure_operator.plan.seen import WorkflowSeen, needs_look, read_workflow

log = get_logger(__name__)

RECHECK_DELETING = 10.0
"""Seconds until the next look at an object that a foreign finalizer holds back; its DELETED event comes anyway."""


class Intake:
    """Takes Workflows in. `enqueue` puts a key into the work queue."""

    def __init__(
        self,
        *,
        client: Client,
        database: Database,
        writer: StatusWriter,
        events: EventPoster,
        statuses: Statuses,
        notifier: Notifier,
        enqueue: Callable[[Key], None],
        leading: Callable[[], bool],
    ) -> None:
        self._client = client
        self._database = database
        self._writer = writer
        self._events = events
        self._statuses = statuses
        self._notifier = notifier
        self._enqueue = enqueue
        self._leading = leading
        self._seen: dict[str, WorkflowSeen] = {}
        self._watched: dict[str, int] = {}
        self._pending: dict[str, Mapping[str, Any]] = {}
        self._taken_in: dict[str, int] = {}

    # -- what is seen

    def offer(self, obj: Mapping[str, Any], *, deleted: bool = False) -> None:
        """Take notice of an object, as the watch tells of it."""
        seen = read_workflow(obj)
        self._watched[seen.uid] = seen.generation
        if deleted:
            self._drop(seen.uid)
            self._enqueue(Key(seen.namespace, seen.name, seen.uid))
        else:
            self._take_notice(obj, seen)

    def listed(self, obj: Mapping[str, Any], *, has_row: bool) -> None:
        """Take notice of an object, as a list has it. Without a row it is looked at whatever was done before."""
        seen = read_workflow(obj)
        if not has_row and not seen.finished:
            self._taken_in.pop(seen.uid, None)
        self._take_notice(obj, seen)

    def known(self) -> set[str]:
        """UIDs of all objects that are known."""
        return set(self._seen)

    def keep_only(self, namespace: str, known_before: set[str], listed: set[str]) -> None:
        """Forget what was known before a complete list and is not in it: its deletion was missed."""
        for uid in known_before - listed:
            if uid in self._seen and self._seen[uid].namespace == namespace:
                self._drop(uid)

    def untold(self) -> set[tuple[str, int]]:
        """Objects and generations that a list had and the watch has not told of."""
        return {
            (uid, seen.generation) for uid, seen in self._seen.items() if self._watched.get(uid, -1) < seen.generation
        }

    def _take_notice(self, obj: Mapping[str, Any], seen: WorkflowSeen) -> None:
        before = self._seen.get(seen.uid)
        if before is not None and before.version > seen.version:
            return  # an older list, overtaken by the watch
        self._seen[seen.uid] = seen
        notice = workflow_notice(before, seen)
        if not self._leading():
            return  # whoever begins to lead lists everything
        if notice is not None:
            self._events.post(notice)
        if needs_look(seen, self._taken_in.get(seen.uid)):
            self._pending[seen.uid] = obj
            self._enqueue(Key(seen.namespace, seen.name, seen.uid))

    def _drop(self, uid: str) -> None:
        self._seen.pop(uid, None)
        self._watched.pop(uid, None)
        self._pending.pop(uid, None)
        self._taken_in.pop(uid, None)

    def forget_all(self) -> None:
        """This process has not been leading: what it took in before says nothing about now."""
        self._pending.clear()
        self._taken_in.clear()

    # -- reconcile

    async def reconcile(self, key: Key) -> Again | None:
        """Make the row of one Workflow as its object wants it. Repeating it changes nothing."""
        obj = self._pending.get(key.uid)
        if obj is None:
            obj = await self._read(key)
        match decide(key.uid, obj):
            case Store(run=run):
                assert obj is not None
                await self._store(run, ended=has_ended(obj))
            case Forget():
                await self._forget(key)
            case End(reason=reason):
                async with self._database.connection("cancel") as connection:
                    await runs.cancel(connection, key.uid, CancelMode.IMMEDIATE, reason)
                self._pending.pop(key.uid, None)  # the next look reads it anew: its end may go unseen
                return Again(RECHECK_DELETING)
            case Refuse(rejected=rejected):
                assert obj is not None
                await self._refuse(key, rejected, obj)
        if obj is not None:
            self._done(key, obj)
        return None

    def _done(self, key: Key, obj: Mapping[str, Any]) -> None:
        if key.uid in self._seen:
            self._taken_in[key.uid] = int(obj["metadata"].get("generation") or 0)
        if self._pending.get(key.uid) is obj:
            del self._pending[key.uid]

    async def _read(self, key: Key) -> Mapping[str, Any] | None:
        """The object that has the name now, None when the API server says that there is none."""
        try:
            obj: Mapping[str, Any] = await self._client.request("GET", WORKFLOW.path(key.namespace, key.name))
        except ApiRefused as error:
            if error.object_missing:
                return None
            raise
        return obj

    async def _store(self, run: NewRun, *, ended: bool) -> None:
        async with self._database.connection("intake") as connection:
            if ended and await runs.get_status(connection, run.id) is None:
                log.warning("workflow has ended and its run is not in the database; it is not run again", run=run.id)
                return
            stored = await runs.upsert(connection, run)
            changed = None
            if stored.changed and not stored.created:
                changed = await self._definition_change(connection, run)
        if changed is not None and run.name is not None:
            self._events.post(run_notice(run.namespace, run.name, run.id, EventReason.WORKFLOW_REJECTED, changed))
        if stored.changed:
            self._statuses.kick(run.id if report_at_once(stored.status) else None)
            self._notifier.ready(run.namespace, run.pool)

    async def _refuse(self, key: Key, rejected: Rejected, obj: Mapping[str, Any]) -> None:
        async with self._database.connection("intake") as connection:
            has_row = await runs.get_status(connection, key.uid) is not None
        match refuse(rejected, has_row=has_row):
            case Refuse():
                wanted = project_rejected(rejected, Metadata.parse(obj))
                if obj.get("status") != wanted:
                    log.info("workflow rejected", workflow=str(key), reason=rejected.reason)
                    await self._writer.write(WORKFLOW, key.namespace, key.name, key.uid, wanted)
            case KeepOld(message=message):
                text = f"this change is not taken in, the run goes on as it was: {message}"
                reason = EventReason.WORKFLOW_REJECTED
                self._events.post(run_notice(key.namespace, key.name, key.uid, reason, text))

    async def _definition_change(self, connection: Any, run: NewRun) -> str | None:
        sources = await status.read(connection, [run.id])
        return changed_definition(run, sources[0].run) if sources else None

    async def _forget(self, key: Key) -> None:
        async with self._database.connection("gone") as connection:
            marked = await runs.resource_gone(connection, [key.uid])
        self._drop(key.uid)
        if marked:
            log.info("workflow gone, its run is cancelled and will be removed", workflow=str(key))
