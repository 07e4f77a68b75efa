"""The registered workflow that runs declared steps: each as soon as what it needs is done.

A node is an ordinary step call of the engine, so everything that holds for Python steps holds for it. The output is
a mapping from step to result. The first failure ends the run, once the steps in progress have finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perdure.declarative.plan import Node, plan
from perdure.engine.codec import encode
from perdure.engine.context import Scope, current_scope
from perdure.engine.pending import PendingStep
from perdure.engine.registry import Registry, StepDefinition, StepOptions, WorkflowDefinition
from perdure.errors import DecodingFailed
from perdure.model.rows import DECLARED_WORKFLOW


def register(registry: Registry) -> None:
    """Make a registry able to run declared steps; they call the steps registered in it."""
    registry.add_workflow(WorkflowDefinition(DECLARED_WORKFLOW, run_declared))


async def run_declared(**_input: Any) -> dict[str, Any]:
    """Run the definition that the run was stored with. Its input is not used yet: there are no expressions."""
    scope = current_scope.get()
    if scope is None:
        raise LookupError("declared steps run under a worker only")
    execution = scope.execution
    return await _Nodes(scope, plan(execution.claimed.definition, execution.registry.steps)).run()


class _Nodes:
    """The nodes of one run: which wait, which run, what they gave."""

    def __init__(self, scope: Scope, nodes: Sequence[Node]) -> None:
        self._scope = scope
        self._nodes = nodes
        self._missing = {node.index: set(node.needs) for node in nodes}
        self._results: dict[int, Any] = {}
        self._running: dict[asyncio.Task[Any], Node] = {}

    async def run(self) -> dict[str, Any]:
        ready = self._ready()
        while ready or self._running:
            if len(ready) == 1 and not self._running:
                self._finished(ready[0], await self._call(ready[0]))
            else:
                await self._run_beside(ready)
            ready = self._ready()
        return {node.name: self._results[node.index] for node in self._nodes}

    async def _run_beside(self, ready: Sequence[Node]) -> None:
        """Start these, and wait until any has finished. Raises the error of the first in order that failed."""
        for node in ready:
            task = asyncio.create_task(self._call(node), name=f"step {node.name}")
            task.add_done_callback(_retrieve)
            self._running[task] = node
        done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        for task in sorted(done, key=lambda task: self._running[task].index):
            self._finished(self._running.pop(task), task.result())

    def _ready(self) -> list[Node]:
        ready = [index for index, missing in self._missing.items() if not missing]
        for index in ready:
            del self._missing[index]
        return [self._nodes[index] for index in ready]

    def _finished(self, node: Node, result: Any) -> None:
        self._results[node.index] = result
        for missing in self._missing.values():
            missing.discard(node.index)

    def _call(self, node: Node) -> PendingStep[Any]:
        execution = self._scope.execution
        registered = execution.registry.steps[node.task]
        try:
            args, kwargs = registered.arguments_by_name(node.arguments)
            definition = registered.declared_as(node.name, _options(registered, node))
        except DecodingFailed as error:
            args, kwargs = [], {}
            definition = StepDefinition(node.name, _raising(error))
        text = encode(dict(node.arguments), f"the arguments of step {node.name}")
        return execution.place(self._scope, definition, args, kwargs, node.index, text)


def _options(registered: StepDefinition, node: Node) -> StepOptions:
    options = registered.options
    if node.retry is not None:
        options = replace(
            options,
            max_attempts=node.retry.max_attempts,
            interval=node.retry.interval,
            backoff_rate=node.retry.backoff_rate,
            max_interval=node.retry.max_interval,
        )
    return options if node.timeout is None else replace(options, timeout=node.timeout)


def _raising(error: Exception) -> Any:
    async def refuse() -> None:
        raise error

    return refuse


def _retrieve(task: asyncio.Task[Any]) -> None:
    """A step that fails after another one has failed the run is recorded; asyncio need not log it."""
    if not task.cancelled():
        task.exception()
