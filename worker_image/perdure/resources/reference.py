"""The reference page of the resources: every field as `kubectl explain` shows it, every reason and wait.

Called by `crdgen`. Reads the finished schemas, so that the page and the API server say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.resources.common import API_VERSION, CATEGORY
from perdure.resources.conditions import CONDITION_MEANINGS, REASON_MEANINGS, WAIT_MEANINGS
from perdure.resources.kinds import Kind
from perdure.resources.markers import INT_OR_STRING, PRESERVE, VALIDATIONS
from perdure.resources.structural import Schema

HEAD = f"""\
<!-- Generated from worker_image/perdure/resources by `python -m perdure.resources.crdgen --write`. Do not edit. -->
# Custom resources

Group and version `{API_VERSION}`, category `{CATEGORY}` (`kubectl get {CATEGORY}`). The same texts stand behind
`kubectl explain`. A field is refused at apply when it breaks what is written here; what only the operator can see
ends in the condition `Accepted` with status False and one of the reasons below.
"""

NO_CHILDREN = frozenset({"WorkerPool.spec.template"})
"""Types of Kubernetes itself: `kubectl explain` has them, the page would be nothing else."""


def reference(kinds: Sequence[tuple[Kind, Schema]]) -> str:
    """The page, as Markdown."""
    lines = [HEAD]
    for kind, schema in kinds:
        lines += _kind(kind, schema)
    lines += _table("Conditions", "type", {str(key): value for key, value in CONDITION_MEANINGS.items()})
    lines += _table("Reasons", "reason", {str(key): value for key, value in REASON_MEANINGS.items()})
    lines += _table("Waits", "kind", {str(key): value for key, value in WAIT_MEANINGS.items()})
    return "\n".join(lines).rstrip() + "\n"


def _kind(kind: Kind, schema: Schema) -> Iterator[str]:
    yield f"## {kind.kind}\n"
    yield f"{kind.description}\n"
    yield f"Short name `{kind.short}`. Columns: {', '.join(column.name for column in kind.columns)}.\n"
    if kind.selectable:
        selectors = (f"`{path.removeprefix('.')}`" for path in kind.selectable)
        yield f"Field selectors: {', '.join(selectors)}.\n"
    if kind.scale is not None:
        yield f"`kubectl scale` sets `{kind.scale.spec_replicas.removeprefix('.')}`.\n"
    for part in ("spec", "status"):
        yield f"### {kind.kind}.{part}\n"
        yield f"{schema['properties'][part]['description']}\n"
        yield "| field | type | what it is |"
        yield "|---|---|---|"
        yield from _fields(schema["properties"][part], part, kind.kind)
        yield ""
        rules = [*_root_rules(schema, part), *_rules(schema["properties"][part], part)]
        if rules:
            yield "Also checked:\n"
            yield from rules
            yield ""


def _fields(schema: Schema, path: str, kind: str) -> Iterator[str]:
    required = set(schema.get("required", []))
    for name, field in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        marks = "**required** " if name in required else ""
        text = " ".join(field["description"].split()).replace("|", "\\|")
        yield f"| `{where}` | {marks}{_type(field)} | {text} |"
        if f"{kind}.{where}" not in NO_CHILDREN:
            yield from _fields(field, where, kind)
            yield from _fields(field.get("items", {}), f"{where}[]", kind)


def _type(field: Schema) -> str:
    if field.get(INT_OR_STRING):
        return "integer or string"
    kind = field.get("type")
    if kind is None:
        return "any"
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object" and "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if kind == "object" and field.get(PRESERVE):
        return "any object"
    return "time" if field.get("format") == "date-time" else str(kind)


def _rules(schema: Schema, path: str) -> Iterator[str]:
    for rule in schema.get(VALIDATIONS, []):
        yield f"* `{path}`: {rule['message']}"
    for name, field in schema.get("properties", {}).items():
        yield from _rules(field, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from _rules(schema["items"], f"{path}[]")


def _root_rules(schema: Schema, part: str) -> Iterator[str]:
    """Rules on the whole resource that are about this part of it; one without a path is about the name."""
    for rule in schema.get(VALIDATIONS, []):
        path = rule.get("fieldPath", ".metadata.name").removeprefix(".")
        if path.startswith(part) or (part == "spec" and path == "metadata.name"):
            yield f"* `{path}`: {rule['message']}"


def _table(title: str, word: str, meanings: dict[str, str]) -> Iterator[str]:
    yield f"## {title}\n"
    yield f"| {word} | meaning |"
    yield "|---|---|"
    for name, meaning in meanings.items():
        yield f"| `{name}` | {meaning} |"
    yield ""
