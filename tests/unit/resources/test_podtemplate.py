"""The schema of a pod template, made from the OpenAPI of an API server."""

from typing import Any

from perdure.resources.podtemplate import convert
from perdure.resources.structural import snapshot
from perdure.resources.workerpool import POD_TEMPLATE_FILE

CORE, META = "io.k8s.api.core.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1."


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/definitions/{name}", "description": "left out", "default": {}}


OPENAPI = {
    "definitions": {
        f"{CORE}PodTemplateSpec": {"properties": {"metadata": ref(f"{META}ObjectMeta"), "spec": ref(f"{CORE}PodSpec")}},
        f"{META}ObjectMeta": {"properties": {"uid": {"type": "string"}}},
        f"{CORE}PodSpec": {
            "required": ["containers"],
            "properties": {
                "containers": {
                    "type": "array",
                    "items": ref(f"{CORE}Container"),
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "x-kubernetes-patch-merge-key": "name",
                },
                "ephemeralContainers": {"type": "array", "items": ref(f"{CORE}Container")},
            },
        },
        f"{CORE}Container": {
            "properties": {
                "name": {"type": "string", "default": ""},
                "limits": {
                    "type": "object",
                    "additionalProperties": ref("io.k8s.apimachinery.pkg.api.resource.Quantity"),
                },
                "ports": {
                    "type": "array",
                    "items": {"properties": {"containerPort": {"type": "integer"}, "protocol": {"type": "string"}}},
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
                },
            }
        },
    }
}


def test_references_are_inlined_and_what_a_definition_may_not_have_is_left_out() -> None:
    found = convert(OPENAPI)
    pod = found["properties"]["spec"]["properties"]
    assert set(pod) == {"containers"}
    container = pod["containers"]["items"]
    assert container["properties"]["name"] == {"type": "string"}
    assert set(found["properties"]["metadata"]["properties"]) == {"labels", "annotations"}
    assert container["properties"]["limits"]["additionalProperties"]["x-kubernetes-preserve-unknown-fields"]


def test_every_key_of_a_list_is_required_or_has_a_default() -> None:
    container = convert(OPENAPI)["properties"]["spec"]["properties"]["containers"]["items"]
    assert container["required"] == ["name"]
    port = container["properties"]["ports"]["items"]
    assert port["required"] == ["containerPort"]
    assert port["properties"]["protocol"]["default"] == "TCP"


def test_the_committed_snapshot_knows_the_fields_of_a_pod() -> None:
    pod = snapshot(POD_TEMPLATE_FILE)["properties"]["spec"]["properties"]
    assert {"containers", "initContainers", "volumes", "affinity", "tolerations", "securityContext"} <= set(pod)
    assert "ephemeralContainers" not in pod
    assert {"image", "env", "resources", "lifecycle"} <= set(pod["containers"]["items"]["properties"])
