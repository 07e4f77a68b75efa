"""The status of a WorkerPool, as a schema and for typed reading. The operator writes it, nobody else."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from perdure.resources.common import Kube, Model
from perdure.resources.markers import atomic, keyed
from perdure.resources.status import MAX_CONDITIONS, Condition, Text

MAX_VERSIONS = 20
"""Most versions that are listed: old ones go as soon as they are drained, more than a few are a sign of trouble."""

VERSION_NAME_MAX = 253
SELECTOR_MAX = 1024


class PoolVersion(Model):
    """One version of the pod template and its Deployment."""

    name: Annotated[str, Field(max_length=VERSION_NAME_MAX)] = Field(
        description="Hash of the pod template; the Deployment's name ends in it."
    )
    replicas: int = Field(ge=0, description="Pods that its Deployment has.")
    ready: int = Field(ge=0, description="Pods that are ready.")
    runs: int = Field(ge=0, description="Runs that its workers hold at the moment.")


class WorkerPoolStatus(Model):
    """How many worker pods there are, how many are wanted, and why."""

    observed_generation: int = Field(ge=0, description="metadata.generation that this is about.")
    replicas: int = Field(ge=0, description="Pods there are, of all versions.")
    ready_replicas: int = Field(ge=0, description="Pods that are ready, of all versions.")
    desired: int = Field(ge=0, description="Pods wanted, as last decided.")
    selector: Annotated[str, Field(max_length=SELECTOR_MAX)] | None = Field(
        default=None, description="Label selector of the pool's pods, for autoscalers."
    )
    current_version: Annotated[str, Field(max_length=VERSION_NAME_MAX)] | None = Field(
        default=None, description="Version that new runs go to."
    )
    versions: Annotated[list[PoolVersion], Field(max_length=MAX_VERSIONS), Kube(atomic())] = Field(
        default_factory=list, description="The versions that still have pods or runs, newest first, at most 20."
    )
    backlog: int | None = Field(
        default=None,
        ge=0,
        description="Runs that are ready and not claimed. Absent: not known, the database cannot be read.",
    )
    message: Text | None = Field(
        default=None, description="Sentence for people: why there are as many pods as there are."
    )
    conditions: Annotated[list[Condition], Field(max_length=MAX_CONDITIONS), Kube(keyed("type"))] = Field(
        default_factory=list, description="Ready and Stalled."
    )
