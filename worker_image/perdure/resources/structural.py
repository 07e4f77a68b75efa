"""From the JSON schema that pydantic writes to a structural schema that the API server takes.

Called by `crdgen` only. The API server refuses `$ref`, `title`, `anyOf` with null, `const`, closed objects and
more; this rewrites what has an equivalent and raises `SchemaError` for everything else, so that nothing a model
says is lost on the way. It also insists on what the project wants of every field: a description and a bound.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, TypeAlias

from perdure.resources.markers import INT_OR_STRING, PRESERVE, SNAPSHOT

Schema: TypeAlias = dict[str, Any]

KEPT = (
    "description",
    "type",
    "format",
    "default",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "nullable",
    "required",
    "properties",
    "items",
    "additionalProperties",
    PRESERVE,
    INT_OR_STRING,
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
)
"""Everything a finished schema may hold, in the order in which it is written."""

INT32_MAX = 2**31 - 1


class SchemaError(ValueError):
    """A model says something that a structural schema cannot say, or leaves out what every field needs."""


def structural(schema: Schema, where: str) -> Schema:
    """The structural schema of a model's JSON schema (`model_json_schema(by_alias=True)`).

    `where` names the schema in errors, for example `Workflow.spec`.
    """
    return _convert(schema, schema.get("$defs", {}), where, ())


def _convert(schema: Schema, defs: Schema, where: str, inside: tuple[str, ...]) -> Schema:
    schema, inside = _inline(schema, defs, where, inside)
    if SNAPSHOT in schema:
        return {"description": schema["description"], **snapshot(schema[SNAPSHOT])}
    found = _collapse(schema, where)
    if "$ref" in found:
        return _convert(found, defs, where, inside)
    if found.get("additionalProperties") is False:
        del found["additionalProperties"]
    if "properties" in found:
        found["properties"] = {
            name: _convert(value, defs, f"{where}.{name}", inside) for name, value in found["properties"].items()
        }
    if isinstance(found.get("items"), dict) and not found.get(PRESERVE):
        found["items"] = _convert(found["items"], defs, f"{where}[]", inside)
    if isinstance(found.get("additionalProperties"), dict) and not found.get(PRESERVE):
        found["additionalProperties"] = _convert(found["additionalProperties"], defs, f"{where}{{}}", inside)
    _formats(found)
    _check(found, where)
    return {key: found[key] for key in KEPT if key in found}


def snapshot(name: str) -> Schema:
    """A finished schema that is kept as a file beside this module."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    loaded: Schema = json.loads(text)
    return loaded


def _inline(schema: Schema, defs: Schema, where: str, inside: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
    """Replace a reference by its target; what stands beside the reference wins over the target's own words."""
    while "$ref" in schema:
        name = str(schema["$ref"]).removeprefix("#/$defs/")
        if name in inside:
            raise SchemaError(f"{where}: {name} contains itself, a structural schema cannot")
        inside = (*inside, name)
        schema = {**defs[name], **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema, inside


def _collapse(schema: Schema, where: str) -> Schema:
    """Drop what only pydantic needs and fold unions that are none."""
    found = {key: value for key, value in schema.items() if key not in {"title", "$defs"}}
    if "default" in found and found["default"] is None:
        del found["default"]
    for union in ("anyOf", "allOf"):
        if union not in found:
            continue
        branches = [branch for branch in found.pop(union) if branch != {"type": "null"}]
        if found.get(INT_OR_STRING):
            continue
        if len(branches) != 1:
            raise SchemaError(f"{where}: a union of types has no structural form")
        return _collapse({**branches[0], **found}, where)
    if "const" in found:
        found["enum"] = [found.pop("const")]
    for exclusive, inclusive, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        if exclusive in found:
            found[inclusive] = found.pop(exclusive) + step
    if found.get("additionalProperties") is True:
        del found["additionalProperties"]
    return found


def _formats(schema: Schema) -> None:
    if schema.get("type") == "integer" and "format" not in schema:
        schema["format"] = "int32" if schema.get("maximum", INT32_MAX + 1) <= INT32_MAX else "int64"


def _check(schema: Schema, where: str) -> None:
    unknown = sorted(set(schema) - set(KEPT))
    if unknown:
        raise SchemaError(f"{where}: {', '.join(unknown)} has no structural form here")
    kind = schema.get("type")
    if kind is None and not schema.get(PRESERVE) and not schema.get(INT_OR_STRING):
        raise SchemaError(f"{where}: has no type")
    if kind in {"number", "null"}:
        raise SchemaError(f"{where}: type {kind} is not for custom resources")
    if not schema.get("description") and not where.endswith(("[]", "{}")):
        raise SchemaError(f"{where}: has no description")
    if kind == "integer" and "minimum" not in schema:
        raise SchemaError(f"{where}: an integer without minimum")
    if kind == "string" and not {"enum", "maxLength", "format"} & set(schema):
        raise SchemaError(f"{where}: a string without maxLength")
    if kind == "array" and not ("maxItems" in schema and "items" in schema and "x-kubernetes-list-type" in schema):
        raise SchemaError(f"{where}: a list needs maxItems, a type of its items and a list type")
    is_map = kind == "object" and "properties" not in schema and not schema.get(PRESERVE)
    if is_map and not ("maxProperties" in schema and "additionalProperties" in schema):
        raise SchemaError(f"{where}: a map needs maxProperties and a type of its values")
