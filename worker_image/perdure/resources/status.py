"""What both kinds' statuses are made of: conditions, instants, counted text. Used by the two status models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from perdure.resources.common import Kube, Model

MAX_CONDITIONS = 8
"""More than any kind has; room for conditions of other controllers on the same object."""

Timestamp = Annotated[str, Kube({"format": "date-time"})]
"""An instant in RFC 3339, UTC, from the database's or the API server's clock."""

Text = Annotated[str, Field(max_length=1024)]
"""A sentence or two for people."""

ShortText = Annotated[str, Field(max_length=256)]
"""A line for people."""

Word = Annotated[str, Field(max_length=63)]
"""A stable word in CamelCase, for programs."""


class Condition(Model):
    """One aspect of the state, in the form that `kubectl wait` reads."""

    type: Word = Field(description="Which aspect: the list in docs/reference/resources.md.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: Word = Field(description="Stable word for why; programs may match on it.")
    message: Text = Field(description="Sentence for people: what happened and what to do.")
    last_transition_time: Timestamp | None = Field(
        default=None, description="When the status last changed, as recorded."
    )
    observed_generation: int | None = Field(default=None, ge=0, description="metadata.generation that this is about.")
