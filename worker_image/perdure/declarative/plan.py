"""PURE. From the stored definition of declared steps to nodes that can be run.

The operator has checked a definition before it is stored; what slipped past, or what this process cannot run, is
refused here again, so that a bad definition is an error of its run and never an endless wait.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from perdure.errors import InvalidResource
from perdure.model.retry import RetryPolicy
from perdure.resources.common import parse_duration
from perdure.resources.steps import Step, TaskAction, duplicate_names, effective_needs, find_cycle, unknown_needs
from perdure.resources.workflow import read_definition


@dataclass(frozen=True, slots=True)
class Node:
    """One declared step. `index` is its position, and its index in the recorded history; `needs` are positions.

    `retry` and `timeout` (seconds) are None where the registered step's own apply.
    """

    index: int
    name: str
    task: str
    arguments: Mapping[str, Any]
    needs: frozenset[int]
    retry: RetryPolicy | None
    timeout: float | None


def plan(definition: str | None, tasks: Collection[str]) -> tuple[Node, ...]:
    """The nodes of a definition, in its order. `tasks` are the registered steps. Raises `InvalidResource`."""
    if definition is None:
        raise InvalidResource("the run has no declared steps")
    steps = read_definition(definition).steps
    _refuse(duplicate_names(steps), "two steps have the same name")
    _refuse([f"{step} needs {need}" for step, need in unknown_needs(steps)], "needs names no step of this definition")
    _refuse([" -> ".join(cycle)] if (cycle := find_cycle(steps)) else [], "steps wait for each other")
    _refuse([step.task for step in steps if step.task not in tasks], "no step is registered for task")
    position = {step.name: index for index, step in enumerate(steps)}
    needs = effective_needs(steps)
    return tuple(
        _node(index, step, frozenset(position[need] for need in needs[step.name])) for index, step in enumerate(steps)
    )


def _node(index: int, step: Step, needs: frozenset[int]) -> Node:
    match step.action:
        case TaskAction(task, arguments):
            return Node(
                index=index,
                name=step.name,
                task=task,
                arguments=arguments,
                needs=needs,
                retry=None if step.retry is None else step.retry.policy(),
                timeout=None if step.attempt_timeout is None else parse_duration(step.attempt_timeout).total_seconds(),
            )
        case unknown:
            assert_never(unknown)


def _refuse(found: list[str], what: str) -> None:
    if found:
        raise InvalidResource(f"{what}: {', '.join(found)}")
