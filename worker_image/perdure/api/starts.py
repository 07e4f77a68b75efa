"""A start that is ready to be made. `Workflow.prepare` makes it, clients and workers carry it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from perdure.engine.registry import WorkflowDefinition
from perdure.model.start import StartOptions

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class PreparedStart(Generic[R]):
    """A start that is ready to be made: which workflow, with what, how. Made by `Workflow.prepare`.

    `input` is the arguments as JSON text. `definition` is None where only the workflow's name is known.
    """

    workflow: str
    arguments: Any
    input: str
    options: StartOptions
    definition: WorkflowDefinition | None
