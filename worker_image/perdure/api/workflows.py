"""`@workflow`: register a function as a workflow under a stable name, and keep its types.

The name is the identity of what is recorded: keep it when the function moves or is renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from perdure.api import registering
from perdure.api.handles import ChildHandle
from perdure.api.starts import PreparedStart
from perdure.engine.calls.children import run_of
from perdure.engine.calls.kinds import build
from perdure.engine.calls.starting import StartChild
from perdure.engine.context import current_scope
from perdure.engine.launched import refuse_foreign, starter_of
from perdure.engine.pending import PendingCall
from perdure.engine.plain import PlainCall
from perdure.engine.registry import Registry, WorkflowDefinition
from perdure.engine.stored import input_of_child
from perdure.model.calls import CallName
from perdure.model.serialization import Serialization, SerializationName
from perdure.model.start import OnDuplicate, Reuse, Seconds, StartOptions, Timeout
from perdure.model.versions import Policy

P = ParamSpec("P")
R = TypeVar("R")


class Workflow(Generic[P, R]):
    """A registered workflow. Called directly it just runs the function, for tests; workers run it durably.

    It does not keep the instance alive in which it is registered, so a workflow may hold another one. Cheap to copy.
    """

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

    @property
    def name(self) -> str:
        """The name under which it is registered: its identity in the database."""
        return self.definition.name

    @property
    def qualified_name(self) -> str:
        """The same: nothing stands before the name of a workflow but what the name itself says."""
        return self.definition.name

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
        timeout: Timeout | None = None,
        delay: Seconds | None = None,
        partition_key: str | None = None,
        reuse: Reuse | None = None,
        deduplication_id: str | None = None,
        on_duplicate: OnDuplicate | None = None,
        attributes: Mapping[str, Any] | None = None,
        serialization: Serialization | SerializationName | None = None,
    ) -> Workflow[P, R]:
        """The same workflow, to be started with these options; those not given stay as they are.

        `id`: 1 to 255 printable characters; a start with the id of a run that exists gives that run. `reuse` says
        otherwise: `"reject"` raises `WorkflowIdInUse`, `"rerun-failed"` has a failed run go on where it failed, with
        its finished steps; both need an `id`. `queue`, `pool`: where workers look for it. `priority`: from 1,
        lowest first, 100 if not said. `timeout`: how long the run may take from its first claim; a child has the
        deadline of its parent if nothing is said, `NO_TIMEOUT`: none at all. `delay`: how long after the start it
        becomes claimable. `partition_key`: whose run it is, for queues that are fair between partitions.
        `deduplication_id`: while a run of the queue holds it that has not ended, another start raises
        `QueueDeduplicated`, or gives that run if `on_duplicate` is `"return-existing"`. `attributes`: a JSON object of
        at most 16 KiB, recorded with the run for lists. `serialization`: how its input and all that it records are
        written. Times in seconds or as timedelta. Raises `InvalidArgument`.
        """
        given = {
            "id": id,
            "queue": queue,
            "pool": pool,
            "priority": priority,
            "timeout": timeout,
            "delay": delay,
            "partition_key": partition_key,
            "reuse": reuse,
            "deduplication_id": deduplication_id,
            "on_duplicate": on_duplicate,
            "attributes": attributes,
            "serialization": serialization,
        }
        said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return Workflow(self.definition, self.function, replace(self.start_options, **said))

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedStart[R]:
        """A start with these arguments and the workflow's options, for `Client.start_many`. Starts nothing.

        Raises `TypeError` for arguments that do not fit, `EncodingFailed` for those that cannot be recorded, and
        `InvalidArgument` for options that do not go together.
        """
        self.start_options.check_whole()
        return PreparedStart(
            workflow=self.definition.name,
            arguments=self.definition.parameters.record(args, kwargs),
            input=self.definition.encode_input(args, kwargs, self.start_options.choice),
            options=self.start_options,
            definition=self.definition,
        )

    def start(self, *args: P.args, **kwargs: P.kwargs) -> PendingCall[ChildHandle[R]]:
        """Start a child of the run whose body this is called in, with the workflow's options; `await` gives its handle.

        Durable when awaited: the child's id is `{parent}-{step}` unless an id was asked for, so a start is never made
        twice. The child is in the parent's namespace, and in its pool and queue unless others were asked for; its
        deadline is the parent's unless it has a timeout. When the parent is cancelled, so is the child; when it ends,
        the child goes on.

        Outside of runs the instance starts it in which the workflow is registered, once that is launched, as
        `Client.start` does. Raises `InsideStep`, `WrongInstance`, `TypeError` for arguments that do not fit,
        `EncodingFailed`, `InvalidArgument`; when awaited, `NotLaunched`, `ConflictingWorkflow`, `WorkflowIdInUse`,
        `QueueDeduplicated`.
        """
        definition = self.definition
        refuse_foreign(current_scope.get(), definition)
        self.start_options.check_whole()
        given = definition.parameters.record(args, kwargs)
        return build(
            StartChild(
                definition,
                given,
                input_of_child(definition.name, definition, self.start_options.choice, given),
                self.start_options,
                lambda run_id: ChildHandle(run_id, definition),
            )
        )

    def run(self, *args: P.args, **kwargs: P.kwargs) -> PendingCall[R]:
        """Start a child and wait for its result: `start`, then `result()` of its handle, in one.

        Takes two places in the run when it is called, one for the start and one for the wait, and each is recorded:
        a recovery starts no second child and does not wait for a result that was there. Outside of runs the instance
        does it, as `Client.run`. Raises as both do, and `InvalidArgument` for a workflow with the option `queue`: use
        `start` for that.
        """
        options, definition = self.start_options, self.definition
        options.check_run()
        if current_scope.get() is None:
            options.check_whole()
            given = definition.parameters.record(args, kwargs)
            text = definition.encode_input(args, kwargs, options.choice)
            return PlainCall(CallName.START, lambda: starter_of(definition).run_given(definition, given, text, options))
        return run_of(self.start(*args, **kwargs), options.id, definition)

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
def workflow(
    *,
    name: str | None = None,
    timeout: Seconds | None = None,
    max_run_attempts: int | None = None,
    serialization: Serialization | SerializationName | None = None,
    version_policy: Policy | None = None,
    registry: Registry | None = None,
) -> WorkflowDecorator: ...
def workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    timeout: Seconds | None = None,
    max_run_attempts: int | None = None,
    serialization: Serialization | SerializationName | None = None,
    version_policy: Policy | None = None,
    registry: Registry | None = None,
) -> Any:
    """Register an async function as a workflow. Its name is `module.qualname` unless `name` says otherwise.

    Outside its steps it must do the same each time it is run with the same input: time, randomness and everything
    from outside belong in steps.

    `timeout`: how long a run of it may take, in seconds or as timedelta, where its start does not say it; also a child
    has this one then instead of its parent's deadline. `max_run_attempts`: how often its body runs in all when it
    fails, 1 to 100; None: as often as the worker's settings say. Both go into the run when it is started from this
    function; a start by name, or a resource, says them itself. `serialization`: how input, result and all that a run of
    it records are written, where its start does not say it: `Serialization.PORTABLE` for one that other languages start
    or await; also a run by name or by a resource records so.

    `version_policy`: which runs that earlier versions have begun go on with this one. `"pinned"`: none. `"auto"`: those
    of versions in which the source of the workflow is the same, but for comments, layout and the bodies of steps.
    `"patched"`: all; whatever was changed since stands behind a `perdure.patch`. None: as the worker's settings say.

    Raises `AlreadyRegistered`, `AlreadyLaunched`, `RegistrationError`.
    """

    def register(function: Callable[..., Any]) -> Workflow[..., Any]:
        default = registering.qualified_name_of(function) if name is None else name
        definition = WorkflowDefinition(
            default,
            function,
            timeout=timeout,
            max_run_attempts=max_run_attempts,
            serialization=serialization,
            version_policy=version_policy,
        )
        (registry or registering.default_registry).add_workflow(definition)
        return Workflow(definition, function)

    return register if function is None else register(function)
