"""Durable calls that do something with other runs, or ask what is known of them.

The other run is nobody's own: so the verb, and the step that stands for it, are one transaction beside the journal,
after everything that the run has recorded (rule R14). A crash before its commit leaves nothing, one after it finds the
step. In a step the same is done under the fence and nothing is recorded: it is done again when the step is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from perdure.engine.calls import plain
from perdure.engine.calls.calls import Calls
from perdure.engine.calls.kinds import Common, Place
from perdure.engine.codec import Decoder, encode
from perdure.engine.context import Scope
from perdure.engine.transaction import current_connection
from perdure.errors import (
    ConflictingWorkflow,
    EncodingFailed,
    InsideStep,
    InvalidArgument,
    NonExistentWorkflow,
    WorkflowNotRewindable,
)
from perdure.model.calls import CallName
from perdure.model.listing import OneRun, Question, RunDetails, RunFilters, RunPage, RunQuery, StepDetails, StepQuery
from perdure.model.management import (
    Cancel,
    Cut,
    Delay,
    Delete,
    Fork,
    Resume,
    Rewind,
    Verb,
    attributes_of,
    cut_of,
    fork_of,
)
from perdure.model.start import Seconds, new_run_id, positive_seconds
from perdure.model.states import CancelMode, RunStatus, StepStatus

T = TypeVar("T")

REASON = "a workflow cancelled it"
"""What a run says that was cancelled without a reason."""

_REFUSED = (ConflictingWorkflow, InvalidArgument, NonExistentWorkflow, WorkflowNotRewindable)
"""What is an outcome of the call: nothing was done, and a replay hears the same."""

_RUN, _PAGE = Decoder(RunDetails, "what is known of a run"), Decoder(RunPage, "a page of runs")
_STEPS = Decoder(tuple[StepDetails, ...], "steps of a run")


@dataclass(frozen=True)
class ManageRun(Common, Generic[T]):
    """Do something with a run. `said` is what was said of how; `value` makes the result of the recorded JSON value."""

    name: CallName
    run_id: str
    verb: Verb
    said: Mapping[str, Any]
    value: Callable[[Any], T]
    starts: bool = False
    in_steps = True

    @property
    def arguments(self) -> list[Any]:
        """The run, and what was said."""
        return [self.run_id, dict(self.said)]

    async def perform(self, calls: Calls, at: Place) -> T:
        """Do it and record that, both or neither."""
        verb, run = self._with_id(f"{at.stem}-{at.index}"), calls.run
        with calls.busy():
            step = calls.write(at, StepStatus.SUCCEEDED)

            async def carry_out() -> Any:
                await calls.log.flush()
                return await calls.log.manage(self.run_id, verb, step)

            try:
                done = await plain.answer(run, carry_out)
            except _REFUSED as error:
                raise calls.fail(at, error) from error
            except Exception as error:
                run.give_up(error, f"{self.name} could not be done")
                raise run.signal() from error
            calls.obey(done.flags)
            if run.dropping or done.output is None:
                raise run.signal()
        return self.read_back(done.output)

    def read_back(self, output: str) -> T:
        """The result."""
        return self.value(json.loads(output))

    def plainly(self, scope: Scope | None) -> Coroutine[Any, Any, T]:
        """As part of a step. Raises `InsideStep` in a transaction."""
        assert scope is not None
        if current_connection() is not None:
            raise InsideStep(
                f"{self.name} was called in transaction {scope.name}: it cannot be taken back when that is rolled "
                "back; call it from the workflow"
            )
        return plain.beside(scope.execution, self._in_step(scope))

    async def _in_step(self, scope: Scope) -> T:
        run, verb = scope.execution, self._with_id(new_run_id())

        async def carry_out() -> Any:
            await run.log.flush()
            return await run.log.manage(self.run_id, verb, None)

        done = await plain.answer(run, carry_out)
        return self.read_back(done.output)

    def _with_id(self, new_id: str) -> Verb:
        """A fork needs an id; that of a run's call is always the same, so that it is made once."""
        verb = self.verb
        return replace(verb, new_id=new_id) if isinstance(verb, Fork) and "id" not in self.said else verb


@dataclass(frozen=True)
class AskRuns(Common, Generic[T]):
    """Ask what is known of runs. What was seen is recorded: a replay sees the same."""

    name: CallName
    question: Question
    said: Mapping[str, Any]
    answer: Decoder
    missing: str = ""
    """The run that has to be there."""
    in_steps = True

    @property
    def arguments(self) -> list[Any]:
        """What was said."""
        return [dict(self.said)]

    async def perform(self, calls: Calls, at: Place) -> T:
        """Look and record what was seen."""
        with calls.busy():
            found = await calls.look(calls.log.inspect(self.question))
            if found is None:
                raise calls.fail(at, self._nonexistent())
            try:
                output = encode(found, f"what {self.name} has found")
            except EncodingFailed as error:
                raise calls.fail(at, error) from error
            calls.succeed(at, output)
        return self.read_back(output)

    def read_back(self, output: str) -> T:
        """What was seen."""
        found: T = self.answer.decode(output, f"what {self.name} has found")
        return found

    def plainly(self, scope: Scope | None) -> Coroutine[Any, Any, T]:
        """As part of a step."""
        assert scope is not None
        return plain.beside(scope.execution, self._in_step(scope))

    async def _in_step(self, scope: Scope) -> T:
        found: T | None = await plain.answer(scope.execution, lambda: scope.execution.log.inspect(self.question))
        if found is None:
            raise self._nonexistent()
        return found

    def _nonexistent(self) -> NonExistentWorkflow:
        return NonExistentWorkflow(f"there is no run {self.missing}")


# -- the kinds, from what was said


def cancel_of(run_id: str, reason: str, mode: CancelMode, cascade: bool) -> ManageRun[RunStatus]:
    """Ask for the end of a run; its status afterwards."""
    said = {"reason": reason, "mode": str(mode), "cascade": cascade}
    return ManageRun(CallName.CANCEL, run_id, Cancel(reason, mode, cascade), said, RunStatus)


def resume_of(run_id: str, handle: Callable[[str], T]) -> ManageRun[T]:
    """Take a run up again; what `handle` makes of its id."""
    return ManageRun(CallName.RESUME, run_id, Resume(), {}, handle, starts=True)


def rewind_of(run_id: str, to: Cut | int | str, handle: Callable[[str], T]) -> ManageRun[T]:
    """Undo steps of a run. Raises `InvalidArgument`."""
    verb = Rewind(cut_of(to))
    return ManageRun(CallName.REWIND, run_id, verb, {"to": verb.to.recorded}, handle, starts=True)


def forked(
    run_id: str,
    at: Cut | int | str,
    new_id: str | None,
    children: Mapping[str, str] | None,
    handle: Callable[[str], T],
) -> ManageRun[T]:
    """Make a run of another's steps. Raises `InvalidArgument`."""
    verb = fork_of(new_id, at, children)
    said: dict[str, Any] = {"at": verb.at.recorded}
    if new_id is not None:
        said["id"] = new_id
    if children is not None:
        said["children"] = dict(verb.children)
    return ManageRun(CallName.FORK, run_id, verb, said, handle, starts=True)


def delete_of(run_id: str) -> ManageRun[None]:
    """Remove a run."""
    return ManageRun(CallName.DELETE, run_id, Delete(), {}, _nothing)


def delay_of(run_id: str, delay: Seconds) -> ManageRun[None]:
    """Let a run begin later. Raises `InvalidArgument`."""
    seconds = positive_seconds("delay", delay)
    return ManageRun(CallName.SET_DELAY, run_id, Delay(seconds), {"delay": seconds}, _nothing)


def attributed(run_id: str, attributes: Mapping[str, Any]) -> ManageRun[None]:
    """Set attributes of a run. Raises `InvalidArgument`."""
    verb = attributes_of(attributes)
    return ManageRun(CallName.SET_ATTRIBUTES, run_id, verb, {"attributes": dict(attributes)}, _nothing)


def details_of(run_id: str, payloads: bool) -> AskRuns[RunDetails]:
    """What is known of a run."""
    said = {"id": run_id, "payloads": payloads}
    return AskRuns(CallName.GET_WORKFLOW, OneRun(run_id, payloads), said, _RUN, run_id)


def steps_of(query: StepQuery) -> AskRuns[tuple[StepDetails, ...]]:
    """What a run has recorded."""
    said = {"id": query.run_id, "after": query.after, "limit": query.limit, "payloads": query.payloads}
    return AskRuns(CallName.LIST_STEPS, query, said, _STEPS, query.run_id)


def list_of(query: RunQuery, filters: RunFilters) -> AskRuns[RunPage]:
    """A page of runs."""
    said: dict[str, Any] = {"limit": query.limit, "newest_first": query.newest_first, "payloads": query.payloads}
    if query.after is not None:
        said["after"] = query.after
    chosen = query.filter
    for name in filters:
        said[name] = getattr(chosen, _FIELDS.get(name, name))
    return AskRuns(CallName.LIST_WORKFLOWS, query, said, _PAGE)


_FIELDS = {"workflow": "workflows", "status": "statuses", "queue": "queues", "pool": "pools", "version": "versions"}
"""Fields of a filter that have another name than what is said."""


def _nothing(_: Any) -> None:
    return None
