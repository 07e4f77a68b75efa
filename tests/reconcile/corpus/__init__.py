"""Resources that must be refused and resources that must be taken, for the API server and for the models."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from perdure.resources.common import API_VERSION

FOLDER = Path(__file__).parent
TEMPLATE = {"spec": {"containers": [{"name": "worker", "image": "example.com/worker:1"}]}}


@dataclass(frozen=True)
class Case:
    """One resource: what is special about it, and for a broken one where and with which sentence it is refused."""

    it: str
    obj: dict[str, Any]
    path: str = ""
    says: str = ""
    only_schema: str = ""

    def __str__(self) -> str:
        return self.it


@cache
def cases(file: str) -> tuple[Case, ...]:
    """All cases of `refused.yaml` or `accepted.yaml`."""
    return tuple(_case(item) for item in yaml.safe_load((FOLDER / file).read_text(encoding="utf-8")))


def _case(item: dict[str, Any]) -> Case:
    spec = item.get("spec")
    if "step" in item:
        spec = {"steps": [item["step"]]}
    elif "pool" in item:
        spec = {"modules": ["orders.flows"], "template": TEMPLATE, **item["pool"]}
        spec = {key: value for key, value in spec.items() if value is not None}
    obj = {
        "apiVersion": API_VERSION,
        "kind": item.get("kind", "Workflow"),
        "metadata": {"name": item.get("name", "case")},
        "spec": spec,
    }
    return Case(item["it"], obj, item.get("path", ""), item.get("says", ""), item.get("only_schema", ""))
