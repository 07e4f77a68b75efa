"""The decorators of an instance, with their types: as `perdure.workflow` and so on, in the instance's registry."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from perdure.api.steps import Step, StepDecorator
from perdure.api.transactions import Transaction, TransactionDecorator
from perdure.api.workflows import Workflow, WorkflowDecorator
from perdure.engine.registry import Isolation, ShouldRetry
from perdure.engine.transaction import Connection
from perdure.model.serialization import Serialization, SerializationName
from perdure.model.start import Seconds
from perdure.model.versions import Policy

P = ParamSpec("P")
R = TypeVar("R")


class RegisterWorkflow(Protocol):
    """As `perdure.workflow`."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload
    def __call__(
        self,
        *,
        name: str | None = None,
        timeout: Seconds | None = None,
        max_run_attempts: int | None = None,
        serialization: Serialization | SerializationName | None = None,
        version_policy: Policy | None = None,
    ) -> WorkflowDecorator: ...


class RegisterStep(Protocol):
    """As `perdure.step`."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def __call__(
        self,
        *,
        name: str | None = None,
        max_attempts: int = 1,
        interval: Seconds = 1.0,
        backoff_rate: float = 2.0,
        max_interval: Seconds = 3600.0,
        timeout: Seconds | None = None,
        preemptible: bool = False,
        should_retry: ShouldRetry | None = None,
    ) -> StepDecorator: ...


class RegisterTransaction(Protocol):
    """As `perdure.transaction`."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Connection, P], Coroutine[Any, Any, R]], /
    ) -> Transaction[P, R]: ...
    @overload
    def __call__(
        self,
        *,
        name: str | None = None,
        isolation: Isolation = "read_committed",
        max_attempts: int = 1,
        interval: Seconds = 1.0,
        backoff_rate: float = 2.0,
        max_interval: Seconds = 3600.0,
        timeout: Seconds | None = None,
        preemptible: bool = False,
        should_retry: ShouldRetry | None = None,
    ) -> TransactionDecorator: ...
