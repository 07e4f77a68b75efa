"""Settings of a worker, from environment variables `PERDURE_…` (the operator sets them in the pods it makes).

Read once by the composition roots. A value that cannot be read stops the process with the variable's name; a number
out of range is moved into it and said in the log, because a pool with a typo should rather run than crash.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator

from perdure.errors import ConfigurationError

PREFIX = "PERDURE_"

LIMITS: dict[str, tuple[float, float]] = {
    "slots": (1, 1000),  # more runs at once than a loop can serve within a lease
    "threads": (1, 1000),
    "lease_seconds": (1, 3600),  # below a second every hiccup is a death; above an hour nobody is ever missed
    "poll_seconds": (0.05, 60),  # the truth behind notifications: a lost one costs at most this
    "drain_seconds": (0, 604800),
    "metrics_port": (0, 65535),
    "probe_port": (0, 65535),
    "journal_connections": (1, 4),  # more only take turns at the same fsync
}
"""Range of each number, both ends allowed."""


class WorkerSettings(BaseModel):
    """Everything that differs between workers. The database's URL is not here, so that it is never printed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    modules: tuple[str, ...] = ()
    """Modules to import; they register workflows and steps."""
    namespace: str = "default"
    pool: str = "default"
    version: str = "local"
    """Version of the code. A run stays with the version that first claimed it."""
    queues: Annotated[tuple[str, ...], Field(min_length=1)] = ("default",)
    """Queues in the order in which they are served: a later one only when the earlier ones are empty."""
    pod_name: str = Field(default_factory=socket.gethostname)
    pod_uid: str = ""
    """Empty outside Kubernetes: then no predecessor can be proved dead, and its lease has to run out."""
    slots: int = 4
    threads: int = 16
    """Threads for synchronous step bodies."""
    lease_seconds: FiniteFloat = 30.0
    poll_seconds: FiniteFloat = 1.0
    drain_seconds: FiniteFloat = 50.0
    """Seconds from SIGTERM to the end of the process: below the pod's grace period of 60."""
    metrics_port: int = 9090
    probe_port: int = 8080
    journal_connections: int = 2
    log_level: str = "INFO"

    @field_validator("modules", "queues", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """A comma-separated text is a list."""
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value


def load(env: Mapping[str, str] | None = None) -> tuple[WorkerSettings, list[str]]:
    """Settings from the environment, and a sentence for each number that was moved into its range.

    Empty variables count as unset. Raises ConfigurationError naming each variable that cannot be read.
    """
    source = os.environ if env is None else env
    given = {name: source.get(PREFIX + name.upper(), "") for name in WorkerSettings.model_fields}
    try:
        settings = WorkerSettings.model_validate({name: value for name, value in given.items() if value.strip()})
    except ValidationError as error:
        raise ConfigurationError("; ".join(_sentence(detail) for detail in error.errors())) from None
    moved: dict[str, float] = {}
    notes: list[str] = []
    for name, (least, most) in LIMITS.items():
        value = getattr(settings, name)
        nearest = min(max(value, least), most)
        if nearest != value:
            moved[name] = type(value)(nearest)
            notes.append(f"{PREFIX}{name.upper()}={value:g} is out of range, {moved[name]:g} is used")
    return settings.model_copy(update=moved), notes


def _sentence(detail: Any) -> str:
    field = str(detail["loc"][0])
    return f"{PREFIX}{field.upper()}={detail['input']!r}: {detail['msg'][0].lower()}{detail['msg'][1:]}"
