"""The Workflow resource: one run, as a person or GitOps asks for it.

Rules on the spec run again at every write of the status, which is what a run does most. So the CRD checks what
cannot change later only when the object is made (`at_create`), compares single fields instead of the whole spec,
and keeps per-step rules to the leaves. Costs and reasons: docs/decisions/0002-custom-resources.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from perdure.model.states import CancelMode
from perdure.resources.common import (
    LABEL_MESSAGE,
    LABEL_PATTERN,
    InvalidFields,
    Kube,
    Label,
    Metadata,
    Model,
    PoolName,
    PositiveDuration,
    Problem,
    parse_duration,
    problems_of,
)
from perdure.resources.markers import any_object, atomic, default_empty, immutable, merge, rule
from perdure.resources.steps import (
    KNOWN_NEEDS,
    KNOWN_NEEDS_MESSAGE,
    KNOWN_NEEDS_SAYS,
    MAX_STEPS,
    NO_SELF_NEED,
    SELF_NEED_MESSAGE,
    UNIQUE_MESSAGE,
    UNIQUE_NAMES,
    RegisteredName,
    Step,
)

KIND = "Workflow"

DEFAULT_PRIORITY = 100
"""Leaves room on both sides: 0 to 99 goes before everything that says nothing, anything higher after it."""

IMMUTABLE_MESSAGE = "is immutable, it defines the run: create a new Workflow"
DEFINITION_RULE = "has(self.workflow) != has(self.steps)"
DEFINITION_MESSAGE = "exactly one of workflow and steps"
SAME_DEFINITION_RULE = "has(self.workflow) == has(oldSelf.workflow)"
SAME_DEFINITION_MESSAGE = "a run cannot change between workflow and steps: create a new Workflow"
SAME_STEPS_RULE = (
    "(has(self.status) && has(self.status.revision) && (!has(oldSelf.status) || !has(oldSelf.status.revision)"
    " || self.status.revision != oldSelf.status.revision)) || !has(self.spec.steps) || !has(oldSelf.spec.steps)"
    " || self.spec.steps == oldSelf.spec.steps"
)
"""Stands on the root, where it can tell a write of the status, which cannot change the spec, by the revision: comparing
a hundred steps costs as much as half of such a write. A write of the spec cannot change the status to get past it."""

SAME_STEPS_MESSAGE = "steps are immutable, they define the run: create a new Workflow"
CANCEL_STAYS_RULE = "!has(oldSelf.cancel) || has(self.cancel)"
CANCEL_STAYS_MESSAGE = "a cancel cannot be taken back: create a new Workflow"
CANCEL_STRONGER_MESSAGE = "a cancel may only be made stronger, from Graceful to Immediate"


class Cancel(Model):
    """A request to end the run. Once set it stays; it may only be made stronger."""

    mode: Annotated[
        Literal["Graceful", "Immediate", "Compensate"],
        Kube(
            rule(
                "self == oldSelf || oldSelf == 'Graceful' && self == 'Immediate'",
                CANCEL_STRONGER_MESSAGE,
                forbidden=True,
            )
        ),
    ] = Field(
        default="Graceful",
        description="Graceful: a step in progress finishes and is recorded, then the run ends. Immediate: the step "
        "in progress is stopped. Compensate: as Graceful, and what the run has done is undone where its code says how, "
        "before it ends. Default Graceful.",
    )


def _label(what: str) -> Kube:
    """Checks a defaulted name when the object is made, and keeps it as it is from then on."""
    return Kube(
        merge(
            rule(f"self.matches('{LABEL_PATTERN}')", LABEL_MESSAGE, at_create=True),
            immutable(f"{what} {IMMUTABLE_MESSAGE}"),
        )
    )


class WorkflowSpec(Model):
    """What to run and where. Suspend, cancel, priority and timeout may be changed while it runs."""

    model_config = ConfigDict(
        json_schema_extra=merge(
            rule(DEFINITION_RULE, DEFINITION_MESSAGE),
            rule(SAME_DEFINITION_RULE, SAME_DEFINITION_MESSAGE, forbidden=True),
            rule(CANCEL_STAYS_RULE, CANCEL_STAYS_MESSAGE, field=".cancel", forbidden=True),
        )
    )

    workflow: Annotated[RegisteredName, Kube(immutable(f"workflow {IMMUTABLE_MESSAGE}"))] | None = Field(
        default=None,
        description="Registered name of a workflow in the worker image, for example orders.process_order. Exactly "
        "one of workflow and steps. A name that no worker of the pool knows is not an error: the run waits, and its "
        "status says which names there are.",
    )
    steps: (
        Annotated[
            list[Step],
            Field(min_length=1, max_length=MAX_STEPS),
            Kube(
                merge(
                    atomic(),
                    rule(UNIQUE_NAMES, UNIQUE_MESSAGE, at_create=True),
                    rule(KNOWN_NEEDS, KNOWN_NEEDS_MESSAGE, says=KNOWN_NEEDS_SAYS, at_create=True),
                    rule(NO_SELF_NEED, SELF_NEED_MESSAGE, at_create=True),
                )
            ),
        ]
        | None
    ) = Field(
        default=None, description="Declared steps, run from top to bottom unless needs says otherwise. At most 100."
    )
    input: Annotated[
        dict[str, Any], Kube(merge(any_object(), default_empty(), immutable(f"input {IMMUTABLE_MESSAGE}")))
    ] = Field(
        default_factory=dict,
        description="Arguments of the workflow by name, any JSON object up to 256 KiB; not for secrets, as everybody "
        "who may read the Workflow or write its status can read it. Default {}.",
    )
    worker_pool: Annotated[PoolName, _label("workerPool")] = Field(
        default="default",
        description="Name of the WorkerPool in this namespace whose workers run it. The pool may come later: until "
        "then the run waits. Default default.",
    )
    queue: Annotated[Label, _label("queue")] = Field(
        default="default", description="Queue of the run; the pool must serve it. Default default."
    )
    priority: int = Field(
        default=DEFAULT_PRIORITY,
        ge=1,
        le=2**31 - 1,
        description="Order in which runs of a queue are claimed, lowest first, then by age; 1 is the first. It does "
        "not stop what already runs. Default 100.",
    )
    timeout: PositiveDuration | None = Field(
        default=None,
        description="Longest time from the first claim to the end; then the run is cancelled. Waiting and suspended "
        "time count. For example 90s, 15m, 1h30m or 2d. Absent: no limit.",
    )
    suspend: bool = Field(
        default=False,
        description="true: the run stops after the step in progress and gives its slot back; false: it goes on from "
        "there. Default false.",
    )
    cancel: Cancel | None = Field(default=None, description="Set to end the run; it cannot be taken back.")
    max_recovery_attempts: int = Field(
        default=10,
        ge=0,
        le=1000,
        description="How often in a row the run is taken over from a dead worker without a step finished in between, "
        "before it fails as MaxRecoveryAttemptsExceeded. Default 10.",
    )

    max_run_attempts: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="How often the workflow runs in all when it raises, with growing waits in between; steps that "
        "succeeded are not made again. 1: it fails at once. Absent: as the workers are set up, 3 unless "
        "PERDURE_RUN_ATTEMPTS says otherwise.",
    )

    @model_validator(mode="after")
    def _one_definition(self) -> Self:
        if (self.workflow is None) == (self.steps is None):
            raise ValueError(DEFINITION_MESSAGE)
        return self

    @property
    def timeout_length(self) -> timedelta | None:
        """`timeout` as a length of time."""
        return None if self.timeout is None else parse_duration(self.timeout)

    @property
    def cancel_mode(self) -> CancelMode | None:
        """The cancel that is asked for, if any."""
        return None if self.cancel is None else CancelMode(self.cancel.mode)

    def definition_json(self) -> str | None:
        """The declared steps as stored with the run (`read_definition` reads it); None for a registered workflow.

        Canonical: equal definitions are equal texts.
        """
        if self.steps is None:
            return None
        steps = [step.model_dump(mode="json", by_alias=True, exclude_unset=True) for step in self.steps]
        return json.dumps({"steps": steps}, sort_keys=True, separators=(",", ":"))


class Definition(Model):
    """A stored definition, as `WorkflowSpec.definition_json` wrote it."""

    steps: list[Step] = Field(min_length=1)


def read_definition(text: str) -> Definition:
    """Reads a stored definition. Raises `InvalidFields` if this version of the program cannot execute it."""
    try:
        return Definition.model_validate(json.loads(text))
    except ValidationError as error:
        raise InvalidFields("definition", problems_of(error, "definition")) from error
    except ValueError as error:
        raise InvalidFields("definition", [Problem("definition", f"is not JSON: {error}")]) from error


@dataclass(frozen=True, slots=True)
class WorkflowResource:
    """A Workflow as the API server hands it out: metadata read tolerantly, spec strictly, status not at all."""

    metadata: Metadata
    spec: WorkflowSpec
    status: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, obj: Mapping[str, Any]) -> Self:
        """Raises `InvalidFields` (an `InvalidResource`) with every problem and its path."""
        metadata = Metadata.parse(obj)
        try:
            spec = WorkflowSpec.model_validate(obj.get("spec") or {})
        except ValidationError as error:
            raise InvalidFields(KIND, problems_of(error, "spec")) from error
        return cls(metadata=metadata, spec=spec, status=obj.get("status") or {})
