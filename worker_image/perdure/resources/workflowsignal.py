"""The WorkflowSignal resource: one message to a run, as a person or a pipeline sends it: an approval, an answer.

It is made once and never changed, so that who may send is decided by the right to create one. The operator delivers it
once, and `perdure.recv` takes it; then it is only a record of what was sent, and may be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from perdure.resources.common import InvalidFields, Kube, Metadata, Model, problems_of
from perdure.resources.markers import any_object, default_empty, immutable, keyed, rule
from perdure.resources.status import MAX_CONDITIONS, Condition, ShortText, Timestamp

KIND = "WorkflowSignal"

TEXT_MAX = 255
"""Longest topic and key in characters, as in `perdure.send`."""

NAME_MAX = 253
"""Longest name of an object."""

NAME_PATTERN = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
PRINTABLE_RULE = r"self.matches(r'^([^\p{C}\p{Z}]| )*$')"
PRINTABLE_MESSAGE = "must have printable characters only"
CREATED_ONCE_MESSAGE = "a signal cannot be changed: create a new WorkflowSignal"


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(PRINTABLE_MESSAGE)
    return text


Printable = Annotated[str, AfterValidator(_printable), Kube(rule(PRINTABLE_RULE, PRINTABLE_MESSAGE))]


class WorkflowSignalSpec(Model):
    """Which run gets what. It cannot be changed: who may send signals is who may create them."""

    model_config = ConfigDict(json_schema_extra=immutable(CREATED_ONCE_MESSAGE))

    workflow_name: Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=NAME_PATTERN)] = Field(
        description="Name of the Workflow in this namespace whose run gets the message. It may be applied up to a "
        "minute after the signal; one that comes later under that name is another matter and gets nothing."
    )
    topic: Annotated[Printable, Field(min_length=1, max_length=TEXT_MAX)] | None = Field(
        default=None,
        description="Topic under which the run takes it: perdure.recv(topic). Absent: that of a recv without a topic.",
    )
    value: Annotated[dict[str, Any], Kube(any_object(), default_empty())] = Field(
        default_factory=dict,
        description="What perdure.recv gives: any JSON object up to 256 KiB; not for secrets, as everybody who may "
        "read the WorkflowSignal can read it. Default {}.",
    )
    key: Annotated[Printable, Field(min_length=1, max_length=TEXT_MAX)] | None = Field(
        default=None,
        description="What makes the message the same one, whoever sends it and however: a second with a key that the "
        "run has had is none. Absent: each signal is one message.",
    )


class WorkflowSignalStatus(Model):
    """What became of the message."""

    observed_generation: int = Field(ge=0, description="metadata.generation that this is about.")
    workflow_id: ShortText | None = Field(default=None, description="Id of the run that has the message.")
    delivered_at: Timestamp | None = Field(default=None, description="When the message was put into its inbox.")
    conditions: Annotated[list[Condition], Field(max_length=MAX_CONDITIONS), Kube(keyed("type"))] = Field(
        default_factory=list, description="Delivered."
    )


@dataclass(frozen=True, slots=True)
class WorkflowSignalResource:
    """A WorkflowSignal as the API server hands it out."""

    metadata: Metadata
    spec: WorkflowSignalSpec
    status: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, obj: Mapping[str, Any]) -> Self:
        """Raises `InvalidFields` (an `InvalidResource`) with every problem and its path."""
        metadata = Metadata.parse(obj)
        try:
            spec = WorkflowSignalSpec.model_validate(obj.get("spec") or {})
        except ValidationError as error:
            raise InvalidFields(KIND, problems_of(error, "spec")) from error
        return cls(metadata=metadata, spec=spec, status=obj.get("status") or {})
