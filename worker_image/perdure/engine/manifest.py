"""What a process has, for others to read: its workflows with their sources' hashes, and the whole as a document.

The worker writes the first into its version's rows, `perdure manifest` prints the second and compares two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from perdure.engine.registry import Definition, Registry
from perdure.errors import ConfigurationError
from perdure.model.versions import VersionPolicy, WorkflowVersion

FORMAT = 1
"""Of the document. One with another number is not compared."""

REFERENCE = "#/$defs/{model}"
"""How the schema of an argument names the types that several of them share."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different in one workflow or step, which `name` says. `stays`: runs that are under way stay with the
    version that began them."""

    name: str
    sentence: str
    stays: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence}"


def versions(registry: Registry, default: VersionPolicy) -> tuple[WorkflowVersion, ...]:
    """The workflows, by name. `default`: the policy of those that were registered without."""
    return tuple(
        WorkflowVersion(name, definition.source_hash, definition.version_policy or default)
        for name, definition in sorted(registry.workflows.items())
    )


def document(registry: Registry, default: VersionPolicy) -> dict[str, Any]:
    """All of it as JSON values. Input: a JSON schema of the arguments by name, as far as there is one."""
    return {
        "format": FORMAT,
        "workflows": {
            each.workflow: {
                "source_hash": each.source_hash,
                "version_policy": each.policy.value,
                "input": input_schema(registry.workflows[each.workflow]),
            }
            for each in versions(registry, default)
        },
        "steps": {name: {"input": input_schema(step)} for name, step in sorted(registry.steps.items())},
    }


def input_schema(definition: Definition) -> dict[str, Any]:
    """JSON schema of the arguments by name. What has none (a type with a validator of its own) may be anything."""
    adapters: dict[str, TypeAdapter[Any]] = {}
    lists = set()
    for name, decoder in definition.inputs.items():
        adapter, wrapped = decoder.adapter
        try:
            adapter.json_schema()
        except (PydanticInvalidForJsonSchema, PydanticUserError):
            continue
        adapters[name] = adapter
        if wrapped:
            lists.add(name)
    found, shared = TypeAdapter.json_schemas(
        [(name, "validation", adapter) for name, adapter in adapters.items()], ref_template=REFERENCE
    )
    properties: dict[str, Any] = {name: {} for name in definition.inputs}
    for (name, _), schema in found.items():
        properties[name] = schema["prefixItems"][0] if name in lists else schema
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(definition.parameters.required),
    }
    if shared.get("$defs"):
        schema["$defs"] = shared["$defs"]
    return schema


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """What is different, by workflow, then by step. Raises `ConfigurationError` for what is no document of this
    format."""
    old, new = _entries(before, "workflows"), _entries(now, "workflows")
    found = [each for name in sorted({*old, *new}) for each in _differences(name, old.get(name), new.get(name))]
    return [*found, *_of_steps(_entries(before, "steps"), _entries(now, "steps"))]


def _entries(given: Any, what: str) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(given, Mapping) or given.get("format") != FORMAT:
        found = given.get("format") if isinstance(given, Mapping) else type(given).__name__
        raise ConfigurationError(f"this is no manifest of format {FORMAT}, but {found!r}: make one with this program")
    entries = given.get(what)
    if not isinstance(entries, Mapping) or not all(isinstance(each, Mapping) for each in entries.values()):
        raise ConfigurationError(f"the manifest has no {what} by name")
    return entries


def _of_steps(old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> Iterator[Difference]:
    """Of steps what is recorded of them, and declared workflows that name them, meet."""
    for name, before in sorted(old.items()):
        if name not in new:
            yield Difference(f"step {name}", "is gone; declared workflows that name it wait for a worker that has it")
        elif new[name].get("input") != before.get("input"):
            yield Difference(f"step {name}", "takes another input: what was recorded for it must fit, too")


def _differences(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Iterator[Difference]:
    if old is None:
        yield Difference(name, "is new")
        return
    if new is None:
        yield Difference(name, "is gone; its runs stay with the version that began them", stays=True)
        return
    policy = new.get("version_policy")
    if old.get("version_policy") != policy:
        yield Difference(name, f"is {policy} now, it was {old.get('version_policy')}")
    if old.get("input") != new.get("input"):
        yield Difference(name, "takes another input: what was recorded for it must fit, too")
    if policy == VersionPolicy.PATCHED:
        if old.get("source_hash") != new.get("source_hash"):
            yield Difference(name, "has changed; all its runs go on with it: the change has to stand behind a patch")
    elif new.get("source_hash") is None:
        yield Difference(name, "has no source that can be read, so it counts as changed", stays=True)
    elif old.get("source_hash") != new["source_hash"]:
        yield Difference(name, "has changed; its runs stay with the version that began them", stays=True)
