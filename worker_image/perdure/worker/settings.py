"""Settings of a worker, from environment variables `PERDURE_…` (the operator sets them in the pods it makes).

Read once by the composition roots. A value that cannot be read stops the process with the variable's name; a number
out of range is moved into it and said in the log, because a pool with a typo should rather run than crash. Settings
built in code are held to the same ranges and refused: a program has a person beside it.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticUndefined

from perdure.engine import errortypes
from perdure.errors import ConfigurationError, InvalidArgument
from perdure.model.start import NAME_MAX, check_text
from perdure.model.variables import PREFIX, Limit, Variable, unknown
from perdure.model.versions import VersionPolicy
from perdure.store.pool import DATABASE_VARIABLES

LIMITS: dict[str, Limit] = {
    "poll_seconds": Limit(0.05, 60, "seconds"),  # the truth behind notifications: a lost one costs at most this
    "slots": Limit(1, 1000, "runs"),  # more at once than a loop can serve within a lease
    "lease_seconds": Limit(1, 3600, "seconds"),  # below, every hiccup is a death; above, nobody is ever missed
    "run_attempts": Limit(1, 100, "attempts"),  # as in a Workflow's spec.maxRunAttempts
    "retry_backoff_seconds": Limit(0, 3600, "seconds"),  # the longest wait between two attempts
    "threads": Limit(1, 1000, "threads"),
    "drain_seconds": Limit(0, 604800, "seconds"),
    "retention_seconds": Limit(0, 315_360_000, "seconds"),  # ten years; an interval in Postgres holds much more
    "metrics_port": Limit(0, 65535, "port"),
    "probe_port": Limit(0, 65535, "port"),
    "journal_connections": Limit(1, 4, "connections"),  # more only take turns at the same fsync
    "transaction_connections": Limit(1, 100, "connections"),  # beyond it transactions wait for each other
}
"""Range and unit of each number."""

TEXTS = {"namespace": NAME_MAX, "pool": NAME_MAX, "queues": NAME_MAX, "version": 253, "pod_name": 253, "pod_uid": 253}
"""Longest text of those that stand in rows; the names are as long as where runs are started."""

TUNABLES = {
    "PERDURE_POLL_SECONDS": 1,
    "PERDURE_SLOTS": 4,
    "PERDURE_LEASE_SECONDS": 30,
    "PERDURE_RUN_ATTEMPTS": 3,
    "PERDURE_RETRY_BACKOFF_SECONDS": 5,
}
"""The five that shape how a worker works, with their defaults; they stand first on the reference page."""

POLL_SHARE = 0.5
"""Longest poll interval as a share of the lease: the probes take a claimer that does not turn for dead by the lease."""

SHORTEST_RETENTION = 3600.0
"""Whoever waits for a result must be able to read it: less than an hour is a wrong unit, not a wish. 0 is no limit."""

Number = Annotated[int, Field(strict=True)]
Seconds = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class WorkerSettings(BaseModel):
    """Everything that differs between workers. The database's URL is not here, so that it is never printed.

    Building one raises `ConfigurationError` naming every field that is of a wrong type, out of its range or does not
    go with another.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_seconds: Seconds = Field(
        default=1.0, description="Longest time between two looks for runs; at most half the lease."
    )
    slots: Number = Field(default=4, description="Runs that a worker has in progress at once.")
    lease_seconds: Seconds = Field(
        default=30.0,
        description="How long a worker counts as alive without a further heartbeat; it beats at a third of it.",
    )
    run_attempts: Number = Field(
        default=3, description="How often a workflow that raises runs in all, where the run itself does not say it."
    )
    retry_backoff_seconds: Seconds = Field(
        default=5.0, description="Wait before the n-th further attempt of a run: n times this, at most an hour."
    )
    modules: tuple[str, ...] = Field(
        default=(), description="Modules to import, with commas; they register workflows and steps. Required."
    )
    bootstrap: str = Field(
        default="",
        pattern=r"^([A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*)?$",
        description="`module:function` that sets up the application before the first run is claimed.",
    )
    namespace: str = Field(default="default", description="Namespace whose runs it takes.")
    pool: str = Field(default="default", description="Pool whose runs it takes.")
    version: str = Field(
        default="local", description="Version of the code. A run stays with the version that first claimed it."
    )
    version_policy: VersionPolicy = Field(
        default=VersionPolicy.PINNED,
        description="Which runs of earlier versions go on with this one, of workflows that do not say it: `pinned` "
        "(none), `auto` (where the source of the workflow is the same) or `patched` (all).",
    )
    queues: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        default=("default",),
        description="Queues, with commas; they take turns: each gets an equal share of the free slots.",
    )
    pod_name: str = Field(default_factory=socket.gethostname, description="Name of the pod. Default: the host's name.")
    pod_uid: str = Field(
        default="",
        description="UID of the pod. Empty outside Kubernetes: then the lease of a predecessor has to run out.",
    )
    threads: Number = Field(default=16, description="Threads for synchronous step bodies.")
    drain_seconds: Seconds = Field(
        default=50.0,
        description="Time from SIGTERM or SIGINT until everything is given back: below the pod's grace period.",
    )
    retention_seconds: Seconds = Field(
        default=2_592_000.0,
        description="Age at which ended runs without a resource are removed; at least an hour. 0: they are kept.",
    )
    metrics_port: Number = Field(default=9090, description="Port of `/metrics`; 0: any free one.")
    probe_port: Number = Field(default=8080, description="Port of the probes; 0: any free one.")
    journal_connections: Number = Field(default=2, description="Connections on which steps are written.")
    transaction_connections: Number = Field(
        default=4,
        description="Most connections for the SQL of steps (`perdure.transaction`, `perdure.idempotency`); "
        "none is opened before a step asks for one.",
    )
    serializer: str = Field(
        default="",
        description="Name of the registered serializer that writes values. Empty: typed JSON.",
    )
    codecs: tuple[str, ...] = Field(
        default=(), description="Names of registered codecs, with commas, in the order in which they write."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = Field(
        default="INFO", description="Least level."
    )
    logs: Literal["auto", "json", "text", "application"] = Field(
        default="auto",
        description="How logs are written: `json`, `text`, `auto` (text on a terminal), or `application`: by the "
        "handlers that the bootstrap hook sets up.",
    )

    @field_validator("modules", "queues", "codecs", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """A comma-separated text is a list."""
        if isinstance(value, str):
            return tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _strictly(cls, values: Any, build: Any) -> Self:
        try:
            settings: Self = build(values)
        except ValidationError as error:
            raise ConfigurationError("; ".join(_sentence(detail) for detail in error.errors())) from None
        settings.validate_strictly()
        return settings

    def validate_strictly(self) -> None:
        """Raises `ConfigurationError` naming each field that is not usable. For settings that were copied with
        changes, which nothing has looked at."""
        problems = []
        for name, limit in LIMITS.items():
            value = getattr(self, name)
            if not _fits(name, value):
                problems.append(f"{name}={value!r} is no {_kind(name)}")
            elif not limit.least <= value <= limit.most:
                problems.append(f"{name}={value:g} is not between {limit.least:g} and {limit.most:g} {limit.unit}")
        problems += self._unusable_texts()
        if not problems:
            problems = [problem for _, problem in self._misfits()]
        if problems:
            raise ConfigurationError("; ".join(problems))

    def _unusable_texts(self) -> list[str]:
        """A sentence for each text that could not be stored, or that no run will ever be started with."""
        problems = []
        for name, longest in TEXTS.items():
            value = getattr(self, name)
            for text in value if isinstance(value, tuple) else (value,):
                try:
                    check_text(name, None if name == "pod_uid" and not text else text, longest)
                except InvalidArgument as error:
                    problems.append(error.message)
        return problems

    def _misfits(self) -> list[tuple[dict[str, float], str]]:
        """Values that do not go together: what to use instead, if there is something, and a sentence."""
        found: list[tuple[dict[str, float], str]] = []
        longest = self.lease_seconds * POLL_SHARE
        if self.poll_seconds > longest:
            found.append(
                (
                    {"poll_seconds": longest},
                    f"poll_seconds={self.poll_seconds:g} is more than half of lease_seconds={self.lease_seconds:g}",
                )
            )
        if 0 < self.retention_seconds < SHORTEST_RETENTION:
            found.append(
                (
                    {"retention_seconds": SHORTEST_RETENTION},
                    f"retention_seconds={self.retention_seconds:g} is less than an hour and not 0",
                )
            )
        if self.metrics_port == self.probe_port != 0:
            found.append(({}, f"metrics_port and probe_port are both {self.probe_port}"))
        return found


def load(env: Mapping[str, str] | None = None) -> tuple[WorkerSettings, list[str]]:
    """Settings from the environment, and a sentence for each number that was moved into its range and each variable
    that is none of ours.

    Empty variables count as unset. Raises ConfigurationError naming each variable that cannot be read.
    """
    source = os.environ if env is None else env
    given = {name: source.get(variable_of(name), "").strip() for name in WorkerSettings.model_fields}
    values: dict[str, Any] = {name: text for name, text in given.items() if text and name not in LIMITS}
    if "log_level" in values:
        values["log_level"] = values["log_level"].upper()
    problems: list[str] = []
    moved: dict[str, str] = {}
    for name, limit in LIMITS.items():
        if not given[name]:
            continue
        try:
            value = _number(name, given[name])
        except ValueError:
            problems.append(f"{variable_of(name)}={given[name]!r}: it should be a {_kind(name)}")
            continue
        values[name] = type(value)(min(max(value, limit.least), limit.most))
        if values[name] != value:
            moved[name] = f"is not between {limit.least:g} and {limit.most:g} {limit.unit}"
    try:
        errortypes.policy(source)
    except ConfigurationError as error:
        problems.append(error.message)
    settings = _fitted(values, problems, moved)
    notes = [
        f"{variable_of(name)}={given[name] or _shown(_default(name))} {why}, {getattr(settings, name):g} is used"
        for name, why in moved.items()
    ]
    return settings, [*notes, *unknown(source, known_variables())]


def _fitted(values: dict[str, Any], problems: list[str], moved: dict[str, str]) -> WorkerSettings:
    """Settings of these values, which are in their ranges; what does not go together is moved where it can be."""
    try:
        loose = _Loose.model_validate(values)
    except ConfigurationError as error:
        problems = [error.message, *problems]
    if problems:
        raise ConfigurationError("; ".join(problems))
    for instead, why in loose._misfits():
        values.update(instead)
        moved.update(dict.fromkeys(instead, f"does not fit ({why})"))
    return WorkerSettings(**values)


class _Loose(WorkerSettings):
    """Settings that have been read and not compared with each other yet."""

    def validate_strictly(self) -> None:
        """Nothing yet."""


def variable_of(field: str) -> str:
    """Name of the environment variable of a field."""
    return f"{PREFIX}{field.upper()}"


def variables() -> tuple[Variable, ...]:
    """What a worker reads, in the order of the reference page; the database's variables apart."""
    fields = WorkerSettings.model_fields
    own = (
        Variable(variable_of(name), field.description or "", _shown(_default(name)), LIMITS.get(name))
        for name, field in fields.items()
    )
    return (*own, *errortypes.VARIABLES)


def known_variables() -> set[str]:
    """Names of all variables that a worker reads."""
    return {each.name for each in (*variables(), *DATABASE_VARIABLES)}


def _default(name: str) -> Any:
    value = WorkerSettings.model_fields[name].default
    return None if value is PydanticUndefined else value


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _kind(name: str) -> str:
    return "whole number" if isinstance(_default(name), int) else "finite number"


def _fits(name: str, value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole or (isinstance(value, float) and math.isfinite(value) and isinstance(_default(name), float))


def _number(name: str, text: str) -> float:
    """The number; raises ValueError when it is none, or none of the field's kind."""
    value = int(text) if isinstance(_default(name), int) else float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _sentence(detail: Any) -> str:
    field = str(detail["loc"][0]) if detail["loc"] else "settings"
    return f"{PREFIX}{field.upper()}={detail['input']!r}: {detail['msg'][0].lower()}{detail['msg'][1:]}"
