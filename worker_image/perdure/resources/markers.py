"""What a pydantic field cannot say about its CRD schema: CEL rules, list types, free-form values.

Each function returns a piece for `json_schema_extra`; `merge` joins several. `structural.py` passes them on
untouched, so the spelling here is the spelling in the CRD.
"""

from __future__ import annotations

from pydantic.config import JsonDict

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
VALIDATIONS = "x-kubernetes-validations"
SNAPSHOT = "x-perdure-snapshot"
"""Not a keyword of the API server: `structural` puts the schema in this file in place of the field's own."""


def merge(*pieces: JsonDict) -> JsonDict:
    """Join pieces into one; rules are appended, anything else that is said twice is a mistake here."""
    joined: JsonDict = {}
    for piece in pieces:
        for key, value in piece.items():
            present = joined.get(key)
            if key == VALIDATIONS and isinstance(present, list) and isinstance(value, list):
                joined[key] = [*present, *value]
            elif key in joined:
                raise ValueError(f"{key} is given twice")
            else:
                joined[key] = value
    return joined


def rule(
    expression: str,
    message: str,
    *,
    says: str | None = None,
    field: str | None = None,
    forbidden: bool = False,
    at_create: bool = False,
) -> JsonDict:
    """A CEL rule: `message` if it does not hold, or the sentence that the expression `says` evaluates to.

    `at_create` makes it a check of new objects alone. Rules on the spec run again at every write of the status;
    what cannot change later needs no second look, and a skipped rule costs next to nothing.
    """
    found: JsonDict = {"rule": expression, "message": message}
    if at_create:
        found["rule"] = f"oldSelf.hasValue() || ({expression})"
        found["optionalOldSelf"] = True
    if says is not None:
        found["messageExpression"] = says
    if field is not None:
        found["fieldPath"] = field
    if forbidden:
        found["reason"] = "FieldValueForbidden"
    return {VALIDATIONS: [found]}


def immutable(message: str) -> JsonDict:
    """`self == oldSelf`: enough for a field that is required or has a default, for others see the parent."""
    return rule("self == oldSelf", message, forbidden=True)


def atomic() -> JsonDict:
    """A list that is replaced as a whole and whose equality is ordered."""
    return {"x-kubernetes-list-type": "atomic"}


def unique() -> JsonDict:
    """A list of scalars without duplicates."""
    return {"x-kubernetes-list-type": "set"}


def keyed(*keys: str) -> JsonDict:
    """A list of objects told apart by these fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def default_empty() -> JsonDict:
    """`default: {}`: without it the defaults inside an absent object do not apply."""
    return {"default": {}}


def any_object() -> JsonDict:
    """An object of any content. Rules see it as a whole and can compare it."""
    return {"type": "object", PRESERVE: True}


def any_value() -> JsonDict:
    """Any JSON value. Rules cannot see it."""
    return {PRESERVE: True}


def literal_values(pattern: str, depth: int) -> JsonDict:
    """An untyped value whose strings match `pattern` down to `depth` levels of maps and lists below it."""
    value: JsonDict = {PRESERVE: True, "nullable": True, "pattern": pattern}
    if depth > 0:
        value["items"] = literal_values(pattern, depth - 1)
        value["additionalProperties"] = literal_values(pattern, depth - 1)
    return value


def from_snapshot(file: str) -> JsonDict:
    """The schema in this file of the package, for types of Kubernetes itself."""
    return {SNAPSHOT: file}
