"""From a Workflow's object to what its row should say. Pure; asked by `control.intake` for every look at a Workflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.model.rows import NewRun
from perdure.resources.acceptance import Accepted, Rejected, validate_workflow
from perdure.resources.intake import new_run


def accept(obj: Mapping[str, Any]) -> NewRun | Rejected:
    """The row that this object asks for, or why there can be none. Never raises for what a user can write."""
    match validate_workflow(obj):
        case Accepted(resource=resource):
            return new_run(resource)
        case Rejected() as rejected:
            return rejected
