"""How the values of one claim become what is stored, and what is stored becomes JSON again.

Used by everything in the engine that writes or reads values of others than the engine. What cannot be read here keeps
the run: another worker may have the serializer or the key. An outage of whatever a codec talks to is waited for, as one
of the database is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perdure.engine.codec import encode
from perdure.engine.context import current_scope
from perdure.engine.encoding import MARK, PLAIN, Encoding, input_encoding
from perdure.engine.failures import Failures, describe, portable
from perdure.engine.sealing import SEALED, legible, opened, sealed
from perdure.engine.serialization import beside
from perdure.errors import DecodingFailed, PerdureError, UnknownSerialization
from perdure.model.outcome import ErrorRecord, Mismatch
from perdure.model.rows import RecordedStep
from perdure.model.serialization import Serialization, SerializationName, chosen

if TYPE_CHECKING:
    from perdure.engine.execute import Execution
    from perdure.engine.registry import WorkflowDefinition

logger = logging.getLogger(__name__)

PAUSE_FIRST, PAUSE_LONGEST = 0.05, 2.0
"""Seconds between attempts to reach what a codec talks to."""


class Values:
    """The values of one claim. `choice` is what was chosen for the run, by its start or its workflow; None: nothing."""

    __slots__ = ("_run", "choice", "encoding")

    def __init__(self, run: Execution) -> None:
        self._run = run
        definition = run.registry.workflows.get(run.claimed.workflow)
        self.choice = run.claimed.serialization or (None if definition is None else definition.serialization)
        self.encoding = run.registry.serializers.encoding(self.choice)

    def encoding_of(self, choice: Serialization | None) -> Encoding:
        """How a value is written for which this was chosen; None: as the run's."""
        return self.encoding if choice is None else self._run.registry.serializers.encoding(choice)

    async def write(self, text: str, what: str) -> str:
        """What is stored for this JSON. Raises `EncodingFailed`."""
        return await self.finish(self.encoding.begin(text, what), self.encoding, what)

    async def finish(self, text: str, encoding: Encoding, what: str) -> str:
        """What is stored, where an encoding has begun. Raises `EncodingFailed`, and the signal of a stopped run."""
        if not encoding.blocking and type(text) is str:
            return text
        return await self._patiently(lambda: beside(encoding.finish, text, what))

    async def read(self, text: str, what: str, step: str = "") -> str:
        """The JSON of a stored text. Where it cannot be read here the run is kept, and the signal raised."""
        if text[:1] != MARK:
            return text
        try:
            return await self._patiently(lambda: self._run.registry.serializers.fetch(text, what))
        except (UnknownSerialization, DecodingFailed) as error:
            raise self._unreadable(error, step) from error

    def failure(self, record: ErrorRecord) -> ErrorRecord:
        """As the failures of this run and of its steps are raised."""
        return portable(record) if self.encoding.portable else record

    def sealed(self, record: ErrorRecord) -> ErrorRecord:
        """As they are stored."""
        return sealed(self.failure(record), self.encoding)

    def text_of(self, record: ErrorRecord) -> str:
        """The text of that."""
        return self.sealed(record).to_json()

    def opened(self, record: ErrorRecord, step: str = "") -> ErrorRecord:
        """A stored failure, as it is raised. Where it cannot be read here the run is kept, and the signal raised."""
        try:
            return opened(record, self._run.registry.serializers)
        except (UnknownSerialization, DecodingFailed) as error:
            raise self._unreadable(error, step) from error

    def legible(self, failures: Failures) -> Failures:
        """The failures of a step as they are raised; of what cannot be read here only what all may read."""
        serializers = self._run.registry.serializers
        return Failures(failures.count, tuple(legible(each, serializers) for each in failures.errors))

    async def row(self, row: RecordedStep) -> RecordedStep:
        """A recorded step with input and output as JSON, and its error opened. Raises as `read`."""
        what = f"what is recorded of step {row.name} at index {row.index}"
        output = None if row.output is None else await self.read(row.output, what, row.name)
        error = row.error
        if error is not None and SEALED in error:
            error = self.opened(ErrorRecord.from_json(error), row.name).to_json()
        return replace(row, input=await self.read(row.input, what, row.name), output=output, error=error)

    def _unreadable(self, error: PerdureError, step: str) -> BaseException:
        self._run.abort(Mismatch(describe(error, step)), error.message)
        return self._run.signal()

    async def _patiently(self, attempt: Callable[[], Awaitable[str]]) -> str:
        pause = PAUSE_FIRST
        while True:
            if self._run.dropping:
                raise self._run.signal()
            try:
                return await attempt()
            except PerdureError as error:
                if not error.retryable:
                    raise
                logger.warning("a value of run %s waits: %s", self._run.claimed.id, error)
            await asyncio.sleep(pause)
            pause = min(PAUSE_LONGEST, pause * 2)


@dataclass(frozen=True, slots=True)
class ChildInput:
    """The input of a run that is started in a run: as JSON, and as what is stored, as far as `encoding` has begun.
    `choice`: how the new run's values are written, if anybody has said so."""

    json: str
    begun: str
    encoding: Encoding
    choice: Serialization | None

    async def finished(self, values: Values) -> str:
        """What is stored. Raises `EncodingFailed`."""
        return await values.finish(self.begun, self.encoding, "the input of a run")


def input_of_child(
    workflow: str, definition: WorkflowDefinition | None, choice: Serialization | None, given: Any
) -> ChildInput:
    """Of recorded arguments, for a start in this body, or outside of runs, where the instance sees to what is stored.

    It is written by the start's choice, as its workflow is registered, or as this run is. Raises `EncodingFailed`.
    """
    scope = current_scope.get()
    what = f"the input of workflow {workflow}"
    wanted = choice or (None if definition is None else definition.serialization)
    if scope is None:
        text = encode(given, what, input_encoding(wanted))
        return ChildInput(text, text, PLAIN, wanted)
    wanted = wanted or scope.execution.values.choice
    encoding = scope.execution.values.encoding_of(wanted)
    text = encode(given, what, encoding)
    return ChildInput(text, encoding.begin(text, what), encoding, wanted)


def marked(row: RecordedStep) -> bool:
    """Whether something in this row is no JSON."""
    if row.input[:1] == MARK or (row.output is not None and row.output[:1] == MARK):
        return True
    return row.error is not None and SEALED in row.error


def begun(value: Any, what: str, choice: Serialization | SerializationName | None) -> tuple[str, Encoding]:
    """A value that the running body or step hands to others, as far as it can be written at once, and how it goes on.

    Raises `EncodingFailed`, `InvalidArgument`.
    """
    wanted = chosen(choice)
    scope = current_scope.get()
    encoding = PLAIN if scope is None else scope.execution.values.encoding_of(wanted)
    if encoding is PLAIN:
        return encode(value, what), PLAIN
    return encoding.begin(encode(value, what, encoding), what), encoding
