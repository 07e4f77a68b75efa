"""The instance that a registry belongs to, as the layers below it see it: who starts a run where none is going on.

The instance itself stands above the worker (`perdure.instance`); a registry knows it by this protocol, and weakly, so
that no reference to a workflow keeps it alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from perdure.errors import NotLaunched, WrongInstance
from perdure.model.start import StartOptions

if TYPE_CHECKING:
    from perdure.engine.context import Scope
    from perdure.engine.registry import WorkflowDefinition


class Starter(Protocol):
    """An instance."""

    async def start_given(
        self, definition: WorkflowDefinition, given: Sequence[Any], input_text: str, options: StartOptions
    ) -> Any:
        """Start a run of one of its workflows, durably; its handle. Raises `NotLaunched`."""
        ...

    async def run_given(
        self, definition: WorkflowDefinition, given: Sequence[Any], input_text: str, options: StartOptions
    ) -> Any:
        """Start one and wait for its result. Raises `NotLaunched`."""
        ...


def starter_of(definition: WorkflowDefinition) -> Starter:
    """The instance in which a workflow is registered. Raises `NotLaunched` when there is none."""
    starter = None if definition.registry is None else definition.registry.instance
    if starter is None:
        raise NotLaunched(
            f"workflow {definition.name} was started outside a run, and no instance that has it is launched: "
            "await perdure.launch() first, or use perdure.Client"
        )
    return starter


def refuse_foreign(scope: Scope | None, definition: WorkflowDefinition) -> None:
    """Raises `WrongInstance` for a workflow of one instance that is started in a run that another executes. What
    belongs to no instance may be started anywhere: another worker has it."""
    registry = definition.registry
    if scope is None or registry is None or registry is scope.execution.registry:
        return
    if registry.instance is not None:
        raise WrongInstance(
            f"workflow {definition.name} belongs to another instance than run {scope.execution.claimed.id}, in which "
            "it was started: start it with a perdure.Client, outside"
        )
