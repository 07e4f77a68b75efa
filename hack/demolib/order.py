"""The objects that the demo applies: the order example as it is in examples/order, set up for this cluster."""

from __future__ import annotations

import copy
import time
from typing import Any

import yaml
from testrun import ROOT

from demolib.install import Image

EXAMPLE = ROOT / "examples" / "order"
FLOWS = "order-flows"
"""The ConfigMap that brings the example's code into the stock worker image: no image has to be built for it."""

PODS = 2
"""One to be killed, and one to go on."""

STEP_SECONDS = 4
"""How long each step takes: long enough to see it and to hit it."""


def objects(worker: Image) -> tuple[list[Any], str]:
    """All objects, the Workflow last, and the name of the Workflow, which is new each time."""
    pool = copy.deepcopy(_document("WorkerPool"))
    workflow = copy.deepcopy(_document("Workflow"))
    name = f"order-{time.strftime('%H%M%S')}"
    workflow["metadata"]["name"] = name
    workflow["spec"]["input"]["pace_seconds"] = STEP_SECONDS
    template = pool["spec"]["template"]
    pool["spec"]["scaling"] = {"min": PODS, "max": PODS}
    template.setdefault("metadata", {}).setdefault("annotations", {})["perdure.dev/image"] = worker.content
    # So that the worker can be killed from inside its pod: see kill_worker.py.
    template["spec"]["shareProcessNamespace"] = True
    template["spec"]["containers"][0]["image"] = str(worker)
    flows = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": FLOWS},
        "data": {"flows.py": (EXAMPLE / "flows.py").read_text()},
    }
    return [flows, pool, workflow], name


def _document(kind: str) -> Any:
    for path in sorted(EXAMPLE.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document["kind"] == kind:
                return document
    raise LookupError(f"no {kind} in {EXAMPLE}")
