"""A serializer that writes the same value otherwise each time. Some processes of the workers write with it and all read
it, so that values of both kinds stand side by side in one run."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

import perdure
from perdure.api import default_registry


class Numbered:
    """What the database refuses stands in its text as it stands in JSON."""

    name = "numbered"

    def serialize(self, value: Any) -> str:
        return f"{secrets.token_hex(4)}:{json.dumps(value)}"

    def deserialize(self, text: str) -> Any:
        return json.loads(text.partition(":")[2])


perdure.register_serializer(Numbered())


def writer(number: int, starts: int) -> str:
    """With which serializer a process writes; empty: JSON."""
    return Numbered.name if (number + starts) % 3 == 0 else ""


def legible(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with its output as JSON, and whether that was written by the serializer."""
    found = dict(row)
    text = found["output"]
    found["numbered"] = text is not None and text.startswith(f"!{Numbered.name}:")
    found["output"] = None if text is None else default_registry.serializers.read(text, "an output")
    return found
