"""`@workflow`: register a function as a workflow under a stable name, and keep its types.

The name is the identity of what is recorded: keep it when the function moves or is renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from perdure.api import registering
from perdure.api.children import ChildHandle
from perdure.api.starts import PreparedStart
from perdure.engine.calls.children import StartChild
from perdure.engine.calls.kinds import build
from perdure.engine.pending import PendingCall
from perdure.engine.registry import Registry, WorkflowDefinition
from perdure.model.start import Seconds, StartOptions

P = ParamSpec("P")
R = TypeVar("R")


class Workflow(Generic[P, R]):
    """A registered workflow. Called directly it just runs the function, for tests; workers run it durably."""

    def __init__(
        self,
        definition: WorkflowDefinition,
        function: Callable[P, Coroutine[Any, Any, R]],
        start_options: StartOptions | None = None,
    ) -> None:
        update_wrapper(self, function, updated=())
        self.definition = definition
        self.function = function
        self.start_options = StartOptions() if start_options is None else start_options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """The body as a plain coroutine; inside a run its steps become steps of that run."""
        return self.function(*args, **kwargs)

    def options(
        self,
        *,
        id: str | None = None,
        queue: str | None = None,
        pool: str | None = None,
        priority: int | None = None,
        timeout: Seconds | None = None,
        delay: Seconds | None = None,
        partition_key: str | None = None,
    ) -> Workflow[P, R]:
        """The same workflow, to be started with these options; those not given stay as they are.

        `id`: 1 to 255 printable characters; a start with the id of a run that exists gives that run. `queue`, `pool`:
        where workers look for it. `priority`: from 1, lowest first, 100 if not said. `timeout`: how long the run may
        take from its first claim. `delay`: how long after the start it becomes claimable. `partition_key`: whose run
        it is, for queues that are fair between partitions. Times in seconds or as timedelta. Raises `InvalidArgument`.
        """
        given = {
            "id": id,
            "queue": queue,
            "pool": pool,
            "priority": priority,
            "timeout": timeout,
            "delay": delay,
            "partition_key": partition_key,
        }
        said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return Workflow(self.definition, self.function, replace(self.start_options, **said))

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedStart[R]:
        """A start with these arguments and the workflow's options, for `Client.start_many`. Starts nothing.

        Raises `TypeError` for arguments that do not fit and `EncodingFailed` for those that cannot be recorded.
        """
        return PreparedStart(
            workflow=self.definition.name,
            arguments=self.definition.parameters.record(args, kwargs),
            input=self.definition.encode_input(args, kwargs),
            options=self.start_options,
            definition=self.definition,
        )

    def start(self, *args: P.args, **kwargs: P.kwargs) -> PendingCall[ChildHandle[R]]:
        """Start a child of the run whose body this is called in, with the workflow's options; `await` gives its handle.

        Durable when awaited: the child's id is `{parent}-{step}` unless an id was asked for, so a start is never made
        twice. The child is in the parent's namespace, and in its pool and queue unless others were asked for; its
        deadline is the parent's unless it has a timeout. When the parent is cancelled, so is the child; when it ends,
        the child goes on. Raises `NotInWorkflow` outside a run (use `Client.start`), `InsideStep`, `TypeError` for
        arguments that do not fit, `EncodingFailed`; when awaited, `ConflictingWorkflow`.
        """
        definition = self.definition
        return build(
            StartChild(
                definition,
                definition.parameters.record(args, kwargs),
                definition.encode_input(args, kwargs),
                self.start_options,
                lambda run_id: ChildHandle(run_id, definition),
            )
        )

    def __repr__(self) -> str:
        return f"<workflow {self.definition.name}>"


class WorkflowDecorator(Protocol):
    """What `workflow(...)` with options returns."""

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]:
        """Register the function."""
        ...


@overload
def workflow(function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(*, name: str | None = None, registry: Registry | None = None) -> WorkflowDecorator: ...
def workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    registry: Registry | None = None,
) -> Any:
    """Register an async function as a workflow. Its name is `module.qualname` unless `name` says otherwise.

    Outside its steps it must do the same each time it is run with the same input: time, randomness and everything
    from outside belong in steps. Raises `AlreadyRegistered`, `RegistrationError`.
    """

    def register(function: Callable[..., Any]) -> Workflow[..., Any]:
        default = f"{getattr(function, '__module__', '')}.{registering.name_of(function)}" if name is None else name
        definition = WorkflowDefinition(default, function)
        (registry or registering.default_registry).add_workflow(definition)
        return Workflow(definition, function)

    return register if function is None else register(function)
