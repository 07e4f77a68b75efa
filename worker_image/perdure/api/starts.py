"""A start that is ready to be made. `Workflow.prepare` makes it, clients and workers carry it out."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from perdure.engine.registry import WorkflowDefinition
from perdure.model.start import StartOptions

R = TypeVar("R")

TOKEN_BITS = 63
"""Of a token: the column is a signed integer of eight bytes."""


@dataclass(frozen=True, slots=True)
class PreparedStart(Generic[R]):
    """A start that is ready to be made: which workflow, with what, how. Made by `Workflow.prepare`. One start: made
    again, as after an answer that was lost, it gives its own run, also where it rejects those of others.

    `input` is the arguments as JSON text. `definition` is None where only the workflow's name is known.
    """

    workflow: str
    arguments: Any
    input: str
    options: StartOptions
    definition: WorkflowDefinition | None
    token: int = field(default_factory=partial(secrets.randbits, TOKEN_BITS), compare=False, repr=False)
    """Tells this start, however often it is made, from every other: see the options `reuse`."""
