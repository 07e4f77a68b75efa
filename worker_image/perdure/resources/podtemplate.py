"""From the OpenAPI of an API server to the schema of a pod template for our CRD. A tool for maintainers.

    kubectl get --raw /openapi/v2 | python -m perdure.resources.podtemplate > pod-template-1.34.json

Run once per Kubernetes release; the output is committed beside this file and read by `crdgen`. Descriptions are
left out: with them the CRD is too large for a client-side apply, and `kubectl explain pod.spec` has them.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from perdure.resources.markers import INT_OR_STRING, PRESERVE
from perdure.resources.structural import Schema

CORE = "io.k8s.api.core.v1."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."

QUANTITY: Schema = {
    PRESERVE: True,
    "pattern": r"^(?<a_quantity_such_as_500m_or_64Mi>"
    r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?)$",
}
"""Numbers with a unit. Untyped, since `cpu: 0.5` is a quantity for Kubernetes, and integer-or-string would refuse it.
The group's name is what a person sees who writes `64 GB`."""

LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}

SPECIAL: dict[str, Schema] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {INT_OR_STRING: True},
    f"{META}Time": {"type": "string", "format": "date-time"},
    f"{META}MicroTime": {"type": "string", "format": "date-time"},
    f"{META}FieldsV1": {"type": "object"},
    f"{META}ObjectMeta": {"type": "object", "properties": {"labels": LABELS, "annotations": LABELS}},
}

LEFT_OUT = {f"{CORE}PodSpec": {"ephemeralContainers"}}
"""Fields that a pod template may not set."""

KEPT = ("type", "format", "enum", "required", "x-kubernetes-list-type", "x-kubernetes-map-type")


def convert(openapi: dict[str, Any]) -> Schema:
    """The structural schema of `PodTemplateSpec` in an OpenAPI v2 document."""
    definitions = openapi["definitions"]
    found = _definition(f"{CORE}PodTemplateSpec", definitions, ())
    found["required"] = ["spec"]
    found["properties"]["spec"]["properties"]["containers"]["minItems"] = 1
    return found


def _definition(name: str, definitions: dict[str, Any], inside: tuple[str, ...]) -> Schema:
    if name in SPECIAL:
        return dict(SPECIAL[name])
    if name in inside:
        raise ValueError(f"{name} contains itself")
    return _schema(definitions[name], definitions, (*inside, name))


def _schema(raw: Schema, definitions: dict[str, Any], inside: tuple[str, ...]) -> Schema:
    if "$ref" in raw:
        return _definition(raw["$ref"].removeprefix("#/definitions/"), definitions, inside)
    found = {key: raw[key] for key in KEPT if key in raw}
    if "properties" in raw:
        left_out = LEFT_OUT.get(inside[-1], set())
        found["properties"] = {
            key: _schema(value, definitions, inside)
            for key, value in sorted(raw["properties"].items())
            if key not in left_out
        }
        found["type"] = "object"
    if "items" in raw:
        found["items"] = _schema(raw["items"], definitions, inside)
    if "additionalProperties" in raw:
        found["additionalProperties"] = _schema(raw["additionalProperties"], definitions, inside)
    if "default" in raw and raw["default"] not in ("", {}):
        found["default"] = raw["default"]
    if found.get("x-kubernetes-list-type") == "map":
        _keys(found, raw["x-kubernetes-list-map-keys"])
    return found


def _keys(found: Schema, keys: list[str]) -> None:
    """Every key of a list-map must be required or have a default; the default of a protocol is TCP."""
    item = found["items"]
    for key in keys:
        if key not in item.get("required", []) and "default" not in item["properties"][key]:
            if key == "protocol":
                item["properties"][key]["default"] = "TCP"
            else:
                item["required"] = sorted([*item.get("required", []), key])
    found["x-kubernetes-list-map-keys"] = keys


if __name__ == "__main__":
    json.dump(convert(json.load(sys.stdin)), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
