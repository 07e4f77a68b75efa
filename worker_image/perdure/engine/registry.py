"""Which workflows and steps a process can run, by name. Filled by the decorators, read by the engine.

A definition prepares everything that depends only on the function (how to bind, encode and decode), so that a call
does none of it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args
from weakref import ReferenceType, ref

from pydantic_core import from_json, to_json

from perdure.engine.codec import Decoder, encode, takes_object
from perdure.engine.encoding import PLAIN, Encoding, input_encoding
from perdure.engine.serialization import Serializers
from perdure.engine.signature import RESULT, Parameters, hints_of
from perdure.engine.source import source_hash
from perdure.errors import AlreadyLaunched, AlreadyRegistered, DecodingFailed, InvalidArgument, RegistrationError
from perdure.model.retry import MAX_ATTEMPTS_LIMIT, RetryPolicy
from perdure.model.rows import step_requirement, workflow_requirement
from perdure.model.serialization import Serialization, SerializationName, chosen
from perdure.model.start import DURATION_MAX_SECONDS, Seconds, check_run_attempts, positive_seconds
from perdure.model.versions import Policy, policy_of

if TYPE_CHECKING:
    from perdure.engine.launched import Starter

NAME_MAX = 253
"""Longest registered name, as in the custom resources."""

RESERVED_PREFIX = "perdure."
"""How the names of durable calls that are no steps begin."""

NOT_PREEMPTIBLE = (
    "a sync body runs in a thread, which nothing can stop, so it cannot be preemptible; "
    "make it an `async def`, or let it look at perdure.current().step.cancelled"
)

ShouldRetry = Callable[[Exception], bool]

Isolation = Literal["read_committed", "repeatable_read", "serializable"]
"""As Postgres calls them, with an underscore."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How often a step may run, how long to wait between attempts, how long one may take. Times in seconds.

    `preemptible`: whether a graceful cancel of the run stops the body, too. `should_retry` decides whether a failure is
    worth another attempt; it never sees cancels, lost leases, and outages of Perdure's own database. Raises
    `InvalidArgument` for a value that cannot be used.
    """

    max_attempts: int = 1
    interval: float = 1.0
    backoff_rate: float = 2.0
    max_interval: float = 3600.0
    timeout: float | None = None
    preemptible: bool = False
    should_retry: ShouldRetry | None = None

    def __post_init__(self) -> None:
        attempts = self.max_attempts
        if not isinstance(attempts, int) or isinstance(attempts, bool) or not 0 <= attempts <= MAX_ATTEMPTS_LIMIT:
            raise InvalidArgument(f"max_attempts must be 0 to {MAX_ATTEMPTS_LIMIT}, not {attempts!r}")
        if not (_is_number(self.backoff_rate) and math.isfinite(self.backoff_rate) and self.backoff_rate >= 0):
            raise InvalidArgument(f"backoff_rate must be a number of at least 0, not {self.backoff_rate!r}")
        for name, value in (("interval", self.interval), ("max_interval", self.max_interval)):
            if not (_is_number(value) and 0 <= value <= DURATION_MAX_SECONDS):
                raise InvalidArgument(f"{name} must be 0 to {DURATION_MAX_SECONDS:.0f} seconds, not {value!r}")
        if self.timeout is not None and not (_is_number(self.timeout) and 0 < self.timeout <= DURATION_MAX_SECONDS):
            raise InvalidArgument(
                f"timeout must be above 0 and at most {DURATION_MAX_SECONDS:.0f} seconds, or None, not {self.timeout!r}"
            )
        if not isinstance(self.preemptible, bool):
            raise InvalidArgument(f"preemptible must be True or False, not {self.preemptible!r}")
        if self.should_retry is not None and not callable(self.should_retry):
            raise InvalidArgument(f"should_retry must be a function of an exception, not {self.should_retry!r}")

    @classmethod
    def said(cls, options: Mapping[str, Any]) -> StepOptions:
        """From what a caller said, where lengths of time may be timedeltas. Raises `InvalidArgument`, `TypeError`."""
        return cls(**_in_seconds(options))

    def changed(self, options: Mapping[str, Any]) -> StepOptions:
        """With what a caller said instead. Raises as `said`."""
        return replace(self, **_in_seconds(options))

    @property
    def policy(self) -> RetryPolicy:
        """The part that decides when the next attempt is."""
        return RetryPolicy(self.max_attempts, self.interval, self.backoff_rate, self.max_interval)


def _in_seconds(options: Mapping[str, Any]) -> dict[str, Any]:
    times = {name: options[name] for name in ("interval", "max_interval", "timeout") if name in options}
    return {
        **options,
        **{name: value.total_seconds() for name, value in times.items() if isinstance(value, timedelta)},
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_name(name: str) -> None:
    """Raises `RegistrationError` for what cannot be the name of a workflow or a step."""
    known = isinstance(name, str) and name.isprintable() and name.isascii()
    if not known or not 0 < len(name) <= NAME_MAX or " " in name:
        raise RegistrationError(f"{name!r} cannot be a name: 1 to {NAME_MAX} printable ASCII characters without spaces")


def check_step_name(name: str) -> None:
    """Raises `RegistrationError` for what cannot be the name of a step."""
    check_name(name)
    if name.startswith(RESERVED_PREFIX):
        raise RegistrationError(f"{name}: names that begin with {RESERVED_PREFIX} are those of durable calls")


class Definition:
    """A registered function: its name and how its arguments and its result are recorded."""

    kind = "function"
    leading = 0
    """How many parameters at the front are the engine's to fill."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        check_name(name)
        if not (inspect.isfunction(function) or isinstance(function, partial)):
            raise RegistrationError(f"{name}: a {self.kind} is a function, not {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise RegistrationError(f"{name}: a {self.kind} returns one value; a generator cannot be recorded")
        self.name = name
        self.function: Callable[..., Any] = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.parameters = Parameters(function, self.leading)

    @cached_property
    def result(self) -> Decoder:
        """Reads the recorded result. Raises `RegistrationError` if its annotation cannot be used."""
        return Decoder(self._hints((RESULT,)).get(RESULT, Any), f"the result of {self.kind} {self.name}")

    @cached_property
    def _inputs(self) -> Mapping[str, Decoder]:
        hints = self._hints(self.parameters.names)
        return {
            name: Decoder(
                self.parameters.type_of(name, hints.get(name, Any)), f"parameter {name} of {self.kind} {self.name}"
            )
            for name in self.parameters.names
        }

    @property
    def inputs(self) -> Mapping[str, Decoder]:
        """What reads each argument, by parameter. Raises `RegistrationError` for annotations that cannot be used."""
        return self._inputs

    def _hints(self, names: tuple[str, ...]) -> dict[str, Any]:
        function = self.function.func if isinstance(self.function, partial) else self.function
        return hints_of(function, names)

    def arguments_by_name(self, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of a call from JSON values by name. Raises `DecodingFailed` that names the parameter."""
        return self._decoded(self.parameters.from_names(given, f"{self.kind} {self.name}"))

    def _decoded(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        decoded = {
            name: self._inputs[name].decode(to_json(value).decode(), f"{name!r} of {self.kind} {self.name}")
            for name, value in values.items()
        }
        return self.parameters.call(decoded)


class StepDefinition(Definition):
    """A registered step."""

    kind = "step"
    transaction: Isolation | None = None
    """How the transaction is begun in which body and outcome are committed together; None for steps without one."""

    def __init__(self, name: str, function: Callable[..., Any], options: StepOptions | None = None) -> None:
        check_step_name(name)
        super().__init__(name, function)
        self.options = options or StepOptions()
        self.policy = self.options.policy
        self._what = f"the arguments of step {name}"
        if self.options.preemptible and not self.is_async:
            raise RegistrationError(f"{name}: {NOT_PREEMPTIBLE}")

    def encode_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], encoding: Encoding = PLAIN) -> str:
        """The recorded input of a call. Raises `TypeError` for a call that does not fit, `EncodingFailed`."""
        return encode(self.parameters.record(args, kwargs), self._what, encoding)

    def arguments_to_undo(self, result: str, given: str) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of the call that undoes another step: its result, and what was given beside it, both as JSON.

        Raises `DecodingFailed` that names the parameter.
        """
        first = self.parameters.names[0]
        values = self.parameters.from_positions(from_json(given), f"{self.kind} {self.name}")
        del values[first]
        args, kwargs = self._decoded({**values, first: from_json(result)})
        return args, kwargs

    def declared_as(self, name: str, options: StepOptions) -> StepDefinition:
        """The same function as a declared step: recorded under another name, with its own options."""
        twin = copy(self)
        twin.name = name
        twin.options = options
        twin.policy = options.policy
        return twin

    def changed(self, options: Mapping[str, Any]) -> StepDefinition:
        """The same step with what a caller says of some of its calls. Raises `InvalidArgument`, `TypeError`."""
        changed = self.options.changed(options)
        if changed.preemptible and not self.is_async:
            raise InvalidArgument(f"{self.name}: {NOT_PREEMPTIBLE}")
        return self.declared_as(self.name, changed)


class TransactionDefinition(StepDefinition):
    """A registered step whose body is given a connection as its first argument, which callers leave out."""

    leading = 1

    def __init__(
        self, name: str, function: Callable[..., Any], options: StepOptions | None = None, *, isolation: Isolation
    ) -> None:
        super().__init__(name, function, options)
        if not self.is_async:
            raise RegistrationError(f"{name}: a transaction is an `async def` function")
        if isolation not in get_args(Isolation):
            raise RegistrationError(f"{name}: isolation is one of {', '.join(get_args(Isolation))}, not {isolation!r}")
        self.transaction = isolation


class WorkflowDefinition(Definition):
    """A registered workflow."""

    kind = "workflow"
    registry: Registry | None = None
    """Where it is registered."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        timeout: Seconds | None = None,
        max_run_attempts: int | None = None,
        serialization: Serialization | SerializationName | None = None,
        version_policy: Policy | None = None,
    ) -> None:
        super().__init__(name, function)
        if not self.is_async:
            raise RegistrationError(f"{name}: a workflow is an `async def` function")
        try:
            self.timeout = None if timeout is None else positive_seconds("timeout", timeout)
            self.max_run_attempts = check_run_attempts(max_run_attempts)
            self.serialization = chosen(serialization)
            self.version_policy = policy_of(version_policy)
        except InvalidArgument as error:
            raise RegistrationError(f"{name}: {error.message}") from None

    @cached_property
    def source_hash(self) -> str | None:
        """Of what its function does: see `engine.source`. None where the source cannot be read."""
        return source_hash(self.function)

    @cached_property
    def _takes_object(self) -> bool:
        """Whether there is one parameter, and an object can be its value."""
        names = self.parameters.names
        return len(names) == 1 and takes_object(self._hints(names).get(names[0], Any))

    def encode_input(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], choice: Serialization | None = None
    ) -> str:
        """The input of a run as JSON. Raises `TypeError` for a call that does not fit, `EncodingFailed`.

        `choice`: of a start; None: as registered. How it will be stored, and so whether it is too large, is not known
        here.
        """
        given, encoding = self.parameters.record(args, kwargs), input_encoding(choice or self.serialization)
        return encode(given, f"the input of workflow {self.name}", encoding)

    def check(self) -> None:
        """Prepare everything that can be wrong with the annotations. Raises `RegistrationError`."""
        _ = self._inputs, self.result

    def arguments_from_input(self, text: str) -> tuple[list[Any], dict[str, Any]]:
        """Arguments from a run's input: a list by position, an object by name.

        An object that is no call by name is the value of the only parameter, if its type is a kind of object.
        Raises `DecodingFailed` that names the parameter.
        """
        where = f"workflow {self.name}"
        try:
            given = from_json(text)
        except ValueError as error:
            raise DecodingFailed(f"the input of {where} is not JSON: {error}") from error
        if isinstance(given, list):
            return self._decoded(self.parameters.from_positions(given, where))
        if isinstance(given, dict) and (self.parameters.names_fit(given) or not self._takes_object):
            return self.arguments_by_name(given)
        return self._decoded(self.parameters.from_positions([given], where))


D = TypeVar("D", bound=Definition)


class Registry:
    """Workflows and steps by name. Not thread-safe: fill it while modules are imported, then only read."""

    def __init__(self, serializers: Serializers | None = None) -> None:
        self.workflows: dict[str, WorkflowDefinition] = {}
        self.steps: dict[str, StepDefinition] = {}
        self.serializers = Serializers() if serializers is None else serializers
        self._frozen_by = ""
        self._instance: ReferenceType[Starter] | None = None

    @property
    def instance(self) -> Starter | None:
        """The instance that it belongs to, if there is one. Not kept alive by it."""
        return None if self._instance is None else self._instance()

    @instance.setter
    def instance(self, instance: Starter | None) -> None:
        self._instance = None if instance is None else ref(instance)

    def freeze(self, why: str) -> None:
        """From now on no workflow may be added: workers have said which ones they have. A step may, with a module that
        is imported late: whoever calls it has it. `why` is a sentence."""
        self._frozen_by = why

    def thaw(self) -> None:
        """Workflows may be added again."""
        self._frozen_by = ""

    def add_workflow(self, definition: WorkflowDefinition) -> None:
        """Raises `AlreadyRegistered` when another function has the name, `AlreadyLaunched` when it is frozen."""
        if self._frozen_by and definition.name not in self.workflows:
            raise AlreadyLaunched(f"workflow {definition.name} cannot be registered any more: {self._frozen_by}")
        _add(self.workflows, definition)
        definition.registry = self

    def add_step(self, definition: StepDefinition) -> None:
        """Raises `AlreadyRegistered` when another function has the name."""
        _add(self.steps, definition)

    def manifest(self) -> tuple[str, ...]:
        """What runs may require of this process, sorted. Called once all modules are loaded.

        Raises `RegistrationError` for annotations that cannot be used, so that a worker says so at its start.
        """
        for workflow in self.workflows.values():
            workflow.check()
        for step in self.steps.values():
            _ = step.result
        names = [workflow_requirement(name) for name in self.workflows] + [
            step_requirement(name) for name in self.steps
        ]
        return tuple(sorted(names))


def _add(known: dict[str, D], definition: D) -> None:
    other = known.get(definition.name)
    if other is not None and not _same_source(other.function, definition.function):
        raise AlreadyRegistered(
            f"two functions are registered as {definition.kind} {definition.name}: "
            f"{_place(other.function)} and {_place(definition.function)}; give one of them another name"
        )
    known[definition.name] = definition


def _same_source(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """The same function, or the same lines of a file that was imported under two module names."""
    return one is other or (one.__module__ != other.__module__ and _place(one) == _place(other))


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}" if code else repr(function)
