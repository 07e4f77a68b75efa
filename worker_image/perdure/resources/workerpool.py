"""The WorkerPool resource: which image runs workflows, how many pods of it, and from which queues.

The operator makes one Deployment per version of the pod template and sets its replicas; everything here is either
an input of that or a report of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from perdure.resources.common import (
    LABEL_MESSAGE,
    LABEL_PATTERN,
    POOL_NAME_MAX,
    UNIQUE,
    Duration,
    InvalidFields,
    Kube,
    Label,
    Metadata,
    Model,
    Problem,
    is_label,
    problems_of,
)
from perdure.resources.markers import atomic, default_empty, from_snapshot, merge, rule, unique

KIND = "WorkerPool"

POD_TEMPLATE_FILE = "pod-template-1.34.json"
"""Schema of a pod template, written by `podtemplate` from the OpenAPI of this Kubernetes version."""

MAX_MODULES = 64
"""Most modules to import: one per part of an application is plenty, and each costs start-up time."""

MAX_QUEUES = 64
"""Most queues of one pool: a worker claims from each in turn."""

MAX_REPLICAS = 1000
"""Most pods of a pool: each opens up to eleven connections, and Postgres ends long before this."""

MODULE_PATTERN = "^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$"
HOOK_PATTERN = f"{MODULE_PATTERN[:-1]}:{MODULE_PATTERN[1:]}"
MIN_MAX_RULE = "!has(self.min) || !has(self.max) || self.min <= self.max"
"""With has(): the API server checks the default `{}` before the defaults inside it are filled in."""

MIN_MAX_MESSAGE = "min must not be over max"
NAME_RULE = f"self.metadata.name.size() <= {POOL_NAME_MAX} && self.metadata.name.matches('{LABEL_PATTERN}')"
NAME_MESSAGE = f"the name of a WorkerPool has at most {POOL_NAME_MAX} characters and {LABEL_MESSAGE}"
NO_CONTAINER_MESSAGE = "needs a container: the first one runs the worker"


class Scaling(Model):
    """How many worker pods there are: enough for the runs that are ready or running, within min and max."""

    min: int = Field(
        default=0,
        ge=0,
        le=MAX_REPLICAS,
        description="Fewest pods, kept also when there is nothing to do. With 0 the first run after an idle time "
        "waits for a pod to start. Default 0.",
    )
    max: int = Field(default=10, ge=1, le=MAX_REPLICAS, description="Most pods, however long the backlog. Default 10.")
    target_per_worker: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Runs, running and ready, per pod to aim at. Absent: the number of slots, so that every ready run "
        "finds a free one.",
    )
    idle_after: Duration = Field(
        default="5m",
        description="How long the pool keeps its last pod without any run before it goes to min. Default 5m.",
    )
    stabilisation: Duration = Field(
        default="1m",
        description="Pods are removed only down to the highest number that was wanted within this time; adding them "
        "is never delayed. Default 1m.",
    )

    @model_validator(mode="after")
    def _min_below_max(self) -> Self:
        if self.min > self.max:
            raise ValueError(MIN_MAX_MESSAGE)
        return self


class Database(Model):
    """Where the worker pods of this pool find the address of Postgres, instead of where the operator's is."""

    secret_name: str = Field(
        min_length=1,
        max_length=253,
        description="Name of a Secret in the pool's namespace. It must hold the same database that the operator uses; "
        "a role with fewer rights is a good reason to set this.",
    )
    key: str = Field(
        default="uri",
        min_length=1,
        max_length=253,
        description="Key in the Secret whose value is a connection URI, postgresql://user:password@host:5432/name. "
        "Default uri.",
    )


def _has_container(template: dict[str, Any]) -> dict[str, Any]:
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers or not all(isinstance(item, dict) for item in containers):
        raise ValueError(NO_CONTAINER_MESSAGE)
    return template


class WorkerPoolSpec(Model):
    """The worker image, what it serves, and how many pods of it there may be."""

    template: Annotated[dict[str, Any], AfterValidator(_has_container), Kube(from_snapshot(POD_TEMPLATE_FILE))] = Field(
        description="Pod template of the workers, as in a Deployment. The first container runs the worker: give its "
        "image, and what your code needs; command, environment, probes and security context are added by the operator "
        "where you leave them out. A changed template is a new version with a Deployment of its own."
    )
    modules: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=253, pattern=MODULE_PATTERN)]],
        Field(min_length=1, max_length=MAX_MODULES),
        Kube(atomic()),
    ] = Field(
        description="Python modules that register workflows and steps, imported in this order when a worker starts, "
        "for example orders.flows."
    )
    bootstrap: Annotated[str, Field(min_length=3, max_length=253, pattern=HOOK_PATTERN)] | None = Field(
        default=None,
        description="Function module:function of the image, for example orders.app:start, that sets up the application "
        "(logging, pools, containers) in each worker after the modules are imported and before it takes its first "
        "run. It may be async, or return a context manager, which is left when the worker stops. Part of the version.",
    )
    queues: Annotated[list[Label], Field(min_length=1, max_length=MAX_QUEUES), UNIQUE, Kube(unique())] = Field(
        default_factory=lambda: ["default"],
        description="Queues that the workers take runs from, in turns: each gets an equal share of the free slots. "
        "Default [default].",
        json_schema_extra={"default": ["default"]},
    )
    slots: int = Field(
        default=4,
        ge=1,
        le=1000,
        description="Runs that one pod works on at the same time. A run that waits for long holds none. Default 4.",
    )
    scaling: Annotated[
        Scaling,
        Kube(merge(default_empty(), rule(MIN_MAX_RULE, MIN_MAX_MESSAGE))),
    ] = Field(default_factory=Scaling, description="How many worker pods there are.")
    replicas: int | None = Field(
        default=None,
        ge=0,
        le=MAX_REPLICAS,
        description="Pods wanted by a person or an autoscaler, also through kubectl scale. While set it takes the "
        "place of the operator's own number, within scaling.min and scaling.max. Absent: the operator decides. An "
        "autoscaler needs it to be set once, as it reads before it writes.",
    )
    suspend: bool = Field(
        default=False,
        description="true: no worker pods. Those that run stop taking runs, finish the steps in progress and go; the "
        "runs wait. Default false.",
    )
    database: Database | None = Field(
        default=None,
        description="Where worker pods find the address of Postgres. Absent: as set when the operator was installed.",
    )

    @property
    def target_per_worker(self) -> int:
        """Runs per pod to aim at."""
        return self.scaling.target_per_worker or self.slots


@dataclass(frozen=True, slots=True)
class WorkerPoolResource:
    """A WorkerPool as the API server hands it out: metadata read tolerantly, spec strictly, status not at all."""

    metadata: Metadata
    spec: WorkerPoolSpec
    status: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, obj: Mapping[str, Any]) -> Self:
        """Raises `InvalidFields` (an `InvalidResource`) with every problem and its path."""
        metadata = Metadata.parse(obj)
        if len(metadata.name) > POOL_NAME_MAX or not is_label(metadata.name):
            raise InvalidFields(KIND, [Problem("metadata.name", NAME_MESSAGE)])
        try:
            spec = WorkerPoolSpec.model_validate(obj.get("spec") or {})
        except ValidationError as error:
            raise InvalidFields(KIND, problems_of(error, "spec")) from error
        return cls(metadata=metadata, spec=spec, status=obj.get("status") or {})
