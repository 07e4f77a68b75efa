"""What the tests of the chart share: the values files of `ci/`, what they render to, and a reader of values.yaml."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support import helm
from tests.support.helm import APP_CHART, Resource

# Set to 1 to write what is rendered instead of comparing with it: `make golden`.
UPDATE = os.environ.get("PERDURE_UPDATE_GOLDEN") == "1"
GOLDEN = Path(__file__).parent / "golden"

CI_VALUES = {path.name.removesuffix("-values.yaml"): path for path in sorted((APP_CHART / "ci").glob("*-values.yaml"))}
CASES = tuple(CI_VALUES)
SMALLEST = {"database": {"existingSecret": "app-db"}}
THROWAWAY = {"database": {"throwaway": {"enabled": True}}}


@cache
def rendered(case: str) -> str:
    return helm.template(values=[CI_VALUES[case]])


def objects(case: str) -> list[Resource]:
    return helm.objects(rendered(case))


def render(values: Mapping[str, Any], **options: Any) -> list[Resource]:
    return helm.objects(helm.template(overrides=values, **options))


def pods(found: list[Resource]) -> dict[str, dict[str, Any]]:
    """The pod specs in them, by kind and name."""
    return {
        f"{each['kind']} {each['metadata']['name']}": each["spec"]["template"]["spec"]
        for each in found
        if "template" in each.get("spec", {})
    }


# -- values.yaml


@dataclass(frozen=True)
class Value:
    """One value that a user may set, as values.yaml shows it."""

    path: tuple[str, ...]
    default: Any
    comment: str

    @property
    def name(self) -> str:
        return ".".join(self.path)


@cache
def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((APP_CHART / "values.schema.json").read_text())
    return loaded


def schema_of(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node itself, or what its $ref names."""
    reference = node.get("$ref")
    if reference is None:
        return node
    found: Mapping[str, Any] = schema()["definitions"][reference.removeprefix("#/definitions/")]
    return found


@cache
def values() -> tuple[Value, ...]:
    """Every value, in the order of values.yaml. An object whose keys the schema fixes is a group, not a value."""
    text = (APP_CHART / "values.yaml").read_text()
    lines = text.splitlines()
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    return tuple(_values(root, schema(), (), lines))


def _values(
    node: yaml.MappingNode, schema_node: Mapping[str, Any], path: tuple[str, ...], lines: list[str]
) -> Iterator[Value]:
    properties = schema_node.get("properties", {})
    for key, value in node.value:
        here = (*path, key.value)
        inner = schema_of(properties.get(key.value, {}))
        if isinstance(value, yaml.MappingNode) and inner.get("additionalProperties") is False:
            yield from _values(value, inner, here, lines)
        else:
            default = yaml.safe_load(yaml.serialize(value))
            yield Value(here, default, _comment_above(lines, key.start_mark.line))


def _comment_above(lines: list[str], number: int) -> str:
    indent = len(lines[number]) - len(lines[number].lstrip())
    found: list[str] = []
    while number > 0 and lines[number - 1].startswith(" " * indent + "# "):
        number -= 1
        found.insert(0, lines[number].strip(" #"))
    return " ".join(found)


def value_at(tree: Any, path: tuple[str, ...]) -> Any:
    """The value there, or None where the tree ends before."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree
