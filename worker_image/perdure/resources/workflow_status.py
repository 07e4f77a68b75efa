"""The status of a Workflow, as a schema and for typed reading. `projection` writes it, nothing reads it as truth.

It can be made again from the database at any time. Lists are atomic: the whole status is replaced at every write,
and `managedFields` stays small. Bounds here are those that the projection keeps.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from perdure.resources.common import Kube, Model
from perdure.resources.markers import any_value, atomic, keyed
from perdure.resources.status import MAX_CONDITIONS, Condition, ShortText, Text, Timestamp, Word
from perdure.resources.steps import MAX_STEPS

REVISION_RULE = (
    "!has(oldSelf.status) || !has(oldSelf.status.revision) || "
    "(has(self.status) && has(self.status.revision) && self.status.revision >= oldSelf.status.revision)"
)
"""Stands on the root of the resource: on the status itself it would let `status: null` pass, and then anything."""

REVISION_MESSAGE = "status.revision never goes back: this status is older than the one that is stored"

NAME_MAX = 253


class StepStatus(Model):
    """What is known about one step."""

    name: Annotated[str, Field(max_length=NAME_MAX)] = Field(description="Name of the step.")
    index: int = Field(
        ge=0, description="Place of the step in the recorded history, or of one not started in spec.steps; from 0."
    )
    phase: Literal["Pending", "Running", "Waiting", "Succeeded", "Failed", "Dropped", "Interrupted", "NotRun"] = Field(
        description="Pending, Running, Waiting (for its next attempt, or what it is about), Succeeded, Failed, "
        "Dropped (another branch has won its select), "
        "Interrupted (was running when its worker went or the run ended: it may have had effects); in a run that has "
        "ended also NotRun."
    )
    attempts: int | None = Field(default=None, ge=0, description="Attempts so far, the present one included.")
    started_at: Timestamp | None = Field(default=None, description="Start of the first attempt.")
    finished_at: Timestamp | None = Field(default=None, description="When its end was recorded.")
    message: ShortText | None = Field(default=None, description="Error of the last failed attempt, shortened.")
    waiting_for: ShortText | None = Field(default=None, description="What it waits for.")
    output: Annotated[Any, Kube(any_value())] = Field(
        default=None, description="What it returned, any JSON value, up to 1 KiB; shown for declared steps."
    )
    output_truncated: bool | None = Field(
        default=None, description="true: there is an output, too large to be shown here."
    )
    output_written_by: ShortText | None = Field(
        default=None,
        description="Name of the serializer or codec that has written the output, which is not shown then.",
    )


class StepCountsStatus(Model):
    """Counts over all steps, also those that the list leaves out."""

    total: int | None = Field(
        default=None, ge=0, description="Steps in all; absent while nobody can know (Python workflows)."
    )
    succeeded: int = Field(ge=0, description="Steps that succeeded.")
    failed: int = Field(ge=0, description="Steps that failed for good.")
    running: int = Field(ge=0, description="Steps that run.")
    waiting: int = Field(ge=0, description="Steps that wait for their next attempt.")


class WaitingForStatus(Model):
    """The one thing that the run waits for."""

    kind: Word = Field(description="Stable word for the kind of thing: the list in docs/reference/resources.md.")
    name: Annotated[str, Field(max_length=NAME_MAX)] | None = Field(default=None, description="Name of the thing.")
    until: Timestamp | None = Field(default=None, description="When it ends by itself, if it does.")
    message: Text = Field(description="Sentence for people: what to do, if anything.")


class ErrorStatus(Model):
    """Why the run failed."""

    type: Annotated[str, Field(max_length=NAME_MAX)] | None = Field(default=None, description="Class of the exception.")
    code: Word | None = Field(default=None, description="Code of the project's own errors, PRD-nnn.")
    message: Text = Field(description="Message of the exception, shortened.")
    step: Annotated[str, Field(max_length=NAME_MAX)] | None = Field(
        default=None, description="Step that failed, if one did."
    )


class WorkerStatus(Model):
    """Who runs it."""

    pod: Annotated[str, Field(max_length=NAME_MAX)] | None = Field(
        default=None, description="Pod that holds the run now."
    )
    version: Annotated[str, Field(max_length=NAME_MAX)] | None = Field(
        default=None, description="Version of the worker image that the run belongs to."
    )


class WorkflowStatus(Model):
    """What has happened so far. Written by the worker that holds the run, else by the operator."""

    phase: Literal["Pending", "Running", "Waiting", "Suspended", "Succeeded", "Failed", "Cancelled"] = Field(
        description="The state in one word. Programs should look at conditions."
    )
    reason: Word = Field(description="Stable word for why it is in this phase; what it waits for, while it waits.")
    message: Text | None = Field(default=None, description="Sentence for people.")
    observed_generation: int = Field(ge=0, description="metadata.generation that the run has taken in.")
    revision: int = Field(ge=0, description="Number of this status: it never goes back, equal means equal status.")
    conditions: Annotated[list[Condition], Field(max_length=MAX_CONDITIONS), Kube(keyed("type"))] = Field(
        description="Accepted, Finished, Succeeded and Stalled."
    )
    progress: Word = Field(description="Steps that succeeded, of how many if that is known: 3/7 or 3.")
    step_counts: StepCountsStatus = Field(description="Steps by phase.")
    steps: Annotated[list[StepStatus], Field(max_length=MAX_STEPS), Kube(atomic())] | None = Field(
        default=None,
        description="The steps by index, at most 100 in 32 KiB; failed and live ones are shown first.",
    )
    waiting: ShortText | None = Field(default=None, description="What the run waits for, as a phrase for the table.")
    waiting_for: WaitingForStatus | None = Field(default=None, description="What the run waits for.")
    output: Annotated[Any, Kube(any_value())] = Field(
        default=None, description="What the workflow returned, any JSON value, up to 4 KiB."
    )
    output_truncated: bool | None = Field(
        default=None, description="true: there is an output, too large to be shown here."
    )
    output_written_by: ShortText | None = Field(
        default=None,
        description="Name of the serializer or codec that has written the output, which is not shown then.",
    )
    failed_attempts: int | None = Field(
        default=None, ge=0, description="How often the workflow has raised so far; absent: never."
    )
    error: ErrorStatus | None = Field(default=None, description="Why it failed.")
    worker: WorkerStatus | None = Field(default=None, description="Who runs it.")
    started_at: Timestamp | None = Field(default=None, description="First claim by a worker.")
    finished_at: Timestamp | None = Field(default=None, description="When its end was recorded.")
