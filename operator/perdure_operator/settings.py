"""Settings of the operator, from environment variables `PERDURE_OPERATOR_…` (the chart sets them).

Read once by `main`. A value that cannot be read or is out of range stops the process with the variable's name: there
is one operator and a person beside it, unlike with workers. The database's URL is not here, so it is never printed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.errors import ConfigurationError
from perdure.model.variables import OTHERS, Limit, Variable, unknown
from perdure.store.pool import DATABASE_VARIABLES
from perdure.store.pooler import checked_pooler
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator
from pydantic_core import PydanticUndefined

from perdure_operator.kube.access import Access, own_namespace
from perdure_operator.plan.manifests import WorkerDefaults

PREFIX = "PERDURE_OPERATOR_"


class OperatorSettings(BaseModel):
    """Everything that differs between installations."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespaces: tuple[str, ...] = Field(
        default=(), description="Namespaces whose resources are served, with commas. Empty: that of the pod."
    )
    worker_database_secret: str = Field(
        default="perdure-database",
        description="Secret with the URI of Postgres that worker pods read, in their own namespace.",
    )
    worker_database_secret_key: str = Field(default="uri", description="Key of the URI in that Secret.")
    worker_database_pooler: str = Field(
        default="",
        description="`PERDURE_DATABASE_POOLER` of worker pods that use this Secret; empty: not set.",
    )
    worker_service_account: str = Field(default="perdure-worker", description="ServiceAccount of worker pods.")
    lease_seconds: FiniteFloat = Field(
        default=30.0, ge=1, le=3600, description="`PERDURE_LEASE_SECONDS` of the workers that the operator makes."
    )
    resync_seconds: FiniteFloat = Field(
        default=300.0, ge=1, le=86400, description="Time between two full comparisons of resources and runs."
    )
    metrics_port: int = Field(default=9090, ge=0, le=65535, description="Port of `/metrics`; 0: any free one.")
    probe_port: int = Field(default=8080, ge=0, le=65535, description="Port of the probes; 0: any free one.")
    pod_name: str = Field(default_factory=socket.gethostname, description="Name of the pod. Default: the host's name.")
    log_level: str = Field(default="INFO", description="Least level.")
    kube_server: str = Field(
        default="", description="URL of the API server, outside a pod; then the next two are needed as well."
    )
    kube_ca_file: Path | None = Field(default=None, description="Certificate of the API server's authority.")
    kube_token_file: Path | None = Field(default=None, description="Token for the API server.")

    @field_validator("namespaces", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """A comma-separated text is a list."""
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("worker_database_pooler")
    @classmethod
    def _known(cls, value: str) -> str:
        """A kind of pooler, or nothing."""
        try:
            return checked_pooler(value, "it").value if value.strip() else ""
        except ConfigurationError as error:
            raise ValueError(error.message) from None

    @property
    def worker_defaults(self) -> WorkerDefaults:
        """What all worker pods of this installation have in common."""
        return WorkerDefaults(
            database_secret=self.worker_database_secret,
            database_key=self.worker_database_secret_key,
            service_account=self.worker_service_account,
            lease_seconds=self.lease_seconds,
            database_pooler=self.worker_database_pooler,
        )

    def access(self) -> Access:
        """Where the API server is. Raises ConfigurationError when nothing says so."""
        if not self.kube_server:
            return Access.in_cluster()
        if self.kube_ca_file is None or self.kube_token_file is None:
            raise ConfigurationError(f"{PREFIX}KUBE_SERVER needs {PREFIX}KUBE_CA_FILE and {PREFIX}KUBE_TOKEN_FILE")
        return Access(self.kube_server.rstrip("/"), self.kube_ca_file, self.kube_token_file)


def load(env: Mapping[str, str] | None = None) -> OperatorSettings:
    """Settings from the environment; empty variables count as unset.

    Raises ConfigurationError naming each variable that cannot be used.
    """
    source = os.environ if env is None else env
    given = {name: source.get(PREFIX + name.upper(), "") for name in OperatorSettings.model_fields}
    try:
        settings = OperatorSettings.model_validate({name: value for name, value in given.items() if value.strip()})
    except ValidationError as error:
        raise ConfigurationError("; ".join(_sentence(detail) for detail in error.errors())) from None
    if settings.namespaces:
        return settings
    own = own_namespace()
    if own is None:
        raise ConfigurationError(f"{PREFIX}NAMESPACES is empty and this is no pod: name the namespaces to serve")
    return settings.model_copy(update={"namespaces": (own,)})


def strangers(env: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each variable `PERDURE_…` that neither this operator nor anything beside it reads."""
    known = [*variables(), *DATABASE_VARIABLES]
    return unknown(os.environ if env is None else env, [each.name for each in known], ignored=OTHERS)


def variables() -> tuple[Variable, ...]:
    """What the operator reads, in the order of the reference page; the database's variables apart."""
    return tuple(
        Variable(PREFIX + name.upper(), field.description or "", _shown(field.default), _limit(name, field.metadata))
        for name, field in OperatorSettings.model_fields.items()
    )


def _limit(name: str, metadata: list[Any]) -> Limit | None:
    least = [each.ge for each in metadata if hasattr(each, "ge")]
    most = [each.le for each in metadata if hasattr(each, "le")]
    return Limit(least[0], most[0], "seconds" if name.endswith("_seconds") else "port") if least and most else None


def _shown(value: Any) -> str:
    if value is None or value is PydanticUndefined or value == ():
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sentence(detail: Any) -> str:
    field = str(detail["loc"][0])
    return f"{PREFIX}{field.upper()}={detail['input']!r}: {detail['msg'][0].lower()}{detail['msg'][1:]}"
