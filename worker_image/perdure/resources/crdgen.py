"""Write everything that is generated from the models: CRDs, CRD chart templates, the reference page.

    python -m perdure.resources.crdgen --write     after a change of a model
    python -m perdure.resources.crdgen --check     in the tests: exit code 1 and the names of files that drifted

Works on a checkout of the repository; installed packages do not need it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from perdure.resources.common import CATEGORY, GROUP, VERSION
from perdure.resources.kinds import KINDS, Column, Kind
from perdure.resources.reference import reference
from perdure.resources.structural import Schema, structural

NOTE = "# Generated from worker_image/perdure/resources by `python -m perdure.resources.crdgen --write`. Do not edit.\n"


def crd(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind, as the API server takes it."""
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
        "schema": {"openAPIV3Schema": schema(kind)},
        "subresources": {"status": {}},
    }
    if kind.scale is not None:
        version["subresources"]["scale"] = {
            "specReplicasPath": kind.scale.spec_replicas,
            "statusReplicasPath": kind.scale.status_replicas,
            "labelSelectorPath": kind.scale.selector,
        }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd_name},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": [kind.short],
                "categories": [CATEGORY],
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def schema(kind: Kind) -> Schema:
    """The schema of a whole resource of this kind."""
    found: Schema = {
        "description": kind.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": kind.kind},
            "metadata": {"type": "object"},
            "spec": structural(kind.spec.model_json_schema(by_alias=True), f"{kind.kind}.spec"),
            "status": structural(kind.status.model_json_schema(by_alias=True), f"{kind.kind}.status"),
        },
    }
    found.update(kind.rules or {})
    return found


def _column(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
    }
    if column.wide:
        found["priority"] = 1
    return found


def plain(kind: Kind) -> str:
    """The CRD as a file for `kubectl apply`."""
    return NOTE + _yaml(crd(kind))


def template(kind: Kind) -> str:
    """The CRD as a template of the chart: the same, with labels, annotations and the keep policy from values."""
    text = _yaml(crd(kind)).replace("{{", "\0").replace("}}", '{{ "}}" }}').replace("\0", '{{ "{{" }}')
    name = f"  name: {kind.crd_name}\n"
    head, _, tail = text.partition(name)
    return f'{NOTE}{head}{name}  {{{{- include "perdure-crds.metadata" . | nindent 2 }}}}\n{tail}'


class _Dumper(yaml.SafeDumper):
    """Long texts as they are written, lists indented, no anchors: a diff shows what changed and nothing else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
        return super().increase_indent(flow, False)


def _yaml(document: Any) -> str:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    return text


def files() -> dict[str, str]:
    """Every generated file with its content, by path from the root of the repository."""
    found = {"docs/reference/resources.md": reference([(kind, schema(kind)) for kind in KINDS])}
    for kind in KINDS:
        found[f"crds/{GROUP}_{kind.plural}.yaml"] = plain(kind)
        found[f"charts/perdure-crds/templates/{kind.plural}.yaml"] = template(kind)
    return found


def drifted(root: Path) -> list[str]:
    """Paths whose content on disk is not what the models say, those included that should not be there."""
    wanted = files()
    present = {str(path.relative_to(root)) for path in root.glob("crds/*")}
    present |= {str(path.relative_to(root)) for path in root.glob("charts/perdure-crds/templates/*.yaml")}
    changed = {path for path, text in wanted.items() if not _same(root / path, text)}
    return sorted(changed | (present - set(wanted)))


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m perdure.resources.crdgen", description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write the files")
    what.add_argument("--check", action="store_true", help="say which files are not what the models say")
    parser.add_argument("--root", type=Path, default=Path(), help="root of the repository (default: this folder)")
    options = parser.parse_args(arguments)
    if not (options.root / "pyproject.toml").is_file():
        parser.error(f"{options.root.resolve()} is not the root of the repository: there is no pyproject.toml")
    if options.write:
        for path, text in files().items():
            target = options.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    wrong = drifted(options.root)
    for path in wrong:
        sys.stderr.write(f"{path} is not what the models say; run python -m perdure.resources.crdgen --write\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
