"""Whether a resource is accepted, as a value: what the operator turns into the `Accepted` condition.

Pure and total: whatever a user wrote, the answer is `Accepted` or `Rejected`, never an exception. Checks here are
those that a schema cannot say, or that objects older than the schema may break.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from perdure.resources.common import InvalidFields
from perdure.resources.conditions import Reason
from perdure.resources.steps import Step, duplicate_names, find_cycle, unknown_needs
from perdure.resources.workerpool import WorkerPoolResource
from perdure.resources.workflow import WorkflowResource
from perdure.resources.workflowsignal import WorkflowSignalResource

MAX_INPUT_BYTES = 256 * 1024
"""Largest input as JSON. An object of 1.5 MiB breaks etcd, and input is stored, decoded and sent at every claim."""

MAX_DEPTH = 64
"""Deepest nesting of a payload: far above any data, far below what breaks a recursive reader."""

MAX_MESSAGE = 1024
"""Longest message of a rejection, in characters: a screenful."""

EQUALS_MESSAGE = "a value that starts with = is reserved for expressions, which are not supported yet"
BRACES_MESSAGE = "${ and {{ are replaced by nothing here: expressions are not supported yet"
NUL_MESSAGE = "holds a NUL character, which Postgres cannot store"
DEPTH_MESSAGE = f"is nested deeper than {MAX_DEPTH} levels"


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Accepted(Generic[R]):
    """The resource is fine; `resource` is what to act on."""

    resource: R


@dataclass(frozen=True, slots=True)
class Rejected:
    """The resource is not, and will not be until it is changed: a stable reason and a sentence with the path."""

    reason: Reason
    message: str


def validate_workflow(obj: Mapping[str, Any]) -> Accepted[WorkflowResource] | Rejected:
    """Check a Workflow as the API server hands it out, in the order in which a person would want to hear of it."""
    spec = obj.get("spec")
    size = _json_bytes(spec.get("input")) if isinstance(spec, Mapping) else 0
    if size > MAX_INPUT_BYTES:
        return _rejected(
            Reason.INPUT_TOO_LARGE,
            f"spec.input: {size} bytes as JSON, at most {MAX_INPUT_BYTES}; store it elsewhere and pass a reference",
        )
    try:
        resource = WorkflowResource.parse(obj)
    except InvalidFields as error:
        return _rejected(Reason.INVALID_SPEC, error.message)
    problem = next(_bad_text(resource.spec.input, "spec.input", literal=False), None)
    if problem is not None:
        return _rejected(Reason.INVALID_SPEC, problem)
    return _check_steps(resource.spec.steps or []) or Accepted(resource)


def validate_worker_pool(obj: Mapping[str, Any]) -> Accepted[WorkerPoolResource] | Rejected:
    """Check a WorkerPool as the API server hands it out. Its template is checked by whoever makes pods of it."""
    try:
        return Accepted(WorkerPoolResource.parse(obj))
    except InvalidFields as error:
        return _rejected(Reason.INVALID_SPEC, error.message)


def validate_workflow_signal(obj: Mapping[str, Any]) -> Accepted[WorkflowSignalResource] | Rejected:
    """Check a WorkflowSignal as the API server hands it out."""
    spec = obj.get("spec")
    size = _json_bytes(spec.get("value")) if isinstance(spec, Mapping) else 0
    if size > MAX_INPUT_BYTES:
        return _rejected(
            Reason.INPUT_TOO_LARGE,
            f"spec.value: {size} bytes as JSON, at most {MAX_INPUT_BYTES}; store it elsewhere and pass a reference",
        )
    try:
        resource = WorkflowSignalResource.parse(obj)
    except InvalidFields as error:
        return _rejected(Reason.INVALID_SPEC, error.message)
    problem = next(_bad_text(resource.spec.value, "spec.value", literal=False), None)
    return Accepted(resource) if problem is None else _rejected(Reason.INVALID_SPEC, problem)


def _check_steps(steps: list[Step]) -> Rejected | None:
    again = duplicate_names(steps)
    if again:
        return _rejected(Reason.DUPLICATE_STEP, f"spec.steps: two steps have the same name: {', '.join(again)}")
    unknown = unknown_needs(steps)
    if unknown:
        name, need = unknown[0]
        names = ", ".join(step.name for step in steps)
        return _rejected(Reason.UNKNOWN_NEED, f"spec.steps: {name} needs {need}, which is no step of: {names}")
    cycle = find_cycle(steps)
    if cycle:
        return _rejected(Reason.CYCLE_IN_NEEDS, _cycle_sentence(cycle, steps))
    for index, step in enumerate(steps):
        problem = next(_bad_text(step.arguments, f"spec.steps[{index}].with", literal=True), None)
        if problem is not None:
            return _rejected(Reason.INVALID_SPEC, problem)
    return None


def _cycle_sentence(cycle: list[str], steps: list[Step]) -> str:
    """Each arrow reads `needs`; a step without `needs` waits for the one above it, which is easily overlooked."""
    implied = sorted({step.name for step in steps if step.needs is None} & set(cycle[:-1]))
    sentence = f"spec.steps: these steps wait for each other: {' -> '.join(cycle)}"
    if implied:
        sentence += f" ({', '.join(implied)}: without needs a step waits for the one above it)"
    return sentence


def _bad_text(value: Any, path: str, *, literal: bool, depth: int = 0) -> Iterator[str]:
    """Sentences about what cannot be stored, and in `literal` values what looks like an expression."""
    if depth > MAX_DEPTH:
        yield f"{path}: {DEPTH_MESSAGE}"
    elif isinstance(value, str):
        if "\0" in value:
            yield f"{path}: {NUL_MESSAGE}"
        if literal and value.startswith("="):
            yield f"{path}: {EQUALS_MESSAGE}"
        if literal and ("${" in value or "{{" in value):
            yield f"{path}: {BRACES_MESSAGE}"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _bad_text(key, f"{path} (a key)", literal=False, depth=depth + 1)
            yield from _bad_text(item, f"{path}.{key}", literal=literal, depth=depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _bad_text(item, f"{path}[{index}]", literal=literal, depth=depth + 1)


def _json_bytes(value: Any) -> int:
    """Length as compact JSON in UTF-8; what is too deep to be written counts as too deep, not as large."""
    try:
        return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"))
    except (RecursionError, TypeError, ValueError):
        return 0


def _rejected(reason: Reason, message: str) -> Rejected:
    return Rejected(reason, message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…")
