"""The Deployment of a version: what is ours, what stays the user's, and what its name depends on."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from perdure.resources.workerpool import POOL_NAME_MAX
from perdure_operator.plan.manifests import (
    MANIFEST_ANNOTATION,
    POOL_LABEL,
    VERSION_LABEL,
    WorkerDefaults,
    deployment,
    deployment_name,
    version_of,
)

from tests.unit.operator.samples import DEFAULTS, pool


def worker(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]["template"]["spec"]["containers"][0]
    return found


def env(manifest: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in worker(manifest)["env"]}


def test_the_worker_is_told_everything_it_needs() -> None:
    manifest = deployment(pool(queues=["fast", "slow"], slots=7, modules=["a.b", "c"]), DEFAULTS)
    version = manifest["metadata"]["labels"][VERSION_LABEL]
    assert env(manifest) == {
        "PERDURE_DATABASE_URL": {"secretKeyRef": {"name": "perdure-database", "key": "uri"}},
        "PERDURE_NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        "PERDURE_POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "PERDURE_POD_UID": {"fieldRef": {"fieldPath": "metadata.uid"}},
        "PERDURE_POOL": "orders",
        "PERDURE_VERSION": version,
        "PERDURE_MODULES": "a.b,c",
        "PERDURE_QUEUES": "fast,slow",
        "PERDURE_SLOTS": "7",
        "PERDURE_LEASE_SECONDS": "30",
        "PERDURE_METRICS_PORT": "9090",
        "PERDURE_PROBE_PORT": "8080",
        "PERDURE_DRAIN_SECONDS": "50",
    }


def test_it_belongs_to_the_pool_and_says_nothing_about_replicas() -> None:
    manifest = deployment(pool(), DEFAULTS)
    name = deployment_name("orders", version_of(pool().spec))
    labels = manifest["metadata"]["labels"]
    assert manifest["metadata"]["name"] == name
    assert labels[POOL_LABEL] == "orders"
    assert labels["app.kubernetes.io/managed-by"] == "perdure"
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == "pool-uid"
    assert "replicas" not in manifest["spec"]
    pod_labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert manifest["spec"]["selector"]["matchLabels"].items() <= pod_labels.items()


def test_defaults_for_a_bare_template() -> None:
    manifest = deployment(pool(), DEFAULTS)
    spec, container = manifest["spec"]["template"]["spec"], worker(manifest)
    assert spec["serviceAccountName"] == "perdure-worker"
    assert spec["terminationGracePeriodSeconds"] == 60
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert container["command"] == ["python", "-m", "perdure.worker"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {"metrics": 9090, "probes": 8080}
    probes = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert probes == {"startupProbe": "/startupz", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


USERS = {
    "metadata": {"labels": {"team": "orders", POOL_LABEL: "stolen"}, "annotations": {"a": "b"}},
    "spec": {
        "serviceAccountName": "own",
        "terminationGracePeriodSeconds": 600,
        "enableServiceLinks": True,
        "securityContext": {"runAsNonRoot": False},
        "nodeSelector": {"disk": "fast"},
        "containers": [
            {
                "name": "app",
                "image": "shop:1",
                "command": ["./start"],
                "env": [
                    {"name": "PERDURE_POOL", "value": "stolen"},
                    {"name": "PERDURE_POLL_SECONDS", "value": "5"},
                    {"name": "PERDURE_DRAIN_SECONDS", "value": "3"},
                    {"name": "GREETING", "value": "hello $(PERDURE_POOL)"},
                ],
                "ports": [{"name": "web", "containerPort": 80}, {"name": "stolen", "containerPort": 8080}],
                "livenessProbe": {"exec": {"command": ["true"]}},
                "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}, "readOnlyRootFilesystem": True},
            },
            {"name": "sidecar", "image": "proxy:1"},
        ],
    },
}


def test_what_a_template_says_stays_except_where_runs_depend_on_it() -> None:
    manifest = deployment(pool(template=copy.deepcopy(USERS)), DEFAULTS)
    template, container, variables = manifest["spec"]["template"], worker(manifest), env(manifest)
    assert template["metadata"]["labels"]["team"] == "orders"
    assert template["metadata"]["labels"][POOL_LABEL] == "orders"
    assert template["metadata"]["annotations"] == {"a": "b"}
    spec = template["spec"]
    assert (spec["serviceAccountName"], spec["terminationGracePeriodSeconds"]) == ("own", 600)
    assert spec["enableServiceLinks"] is True
    assert spec["securityContext"] == {"runAsNonRoot": False, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["nodeSelector"] == {"disk": "fast"}
    assert container["command"] == ["./start"]
    assert container["securityContext"] == {
        "capabilities": {"add": ["NET_BIND_SERVICE"]},
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
    }
    assert variables["PERDURE_POOL"] == "orders"
    assert variables["PERDURE_POLL_SECONDS"] == "5"
    assert variables["PERDURE_DRAIN_SECONDS"] == "3"
    names = [entry["name"] for entry in container["env"]]
    assert len(names) == len(set(names))
    assert names.index("GREETING") > names.index("PERDURE_POOL"), "a reference works only to what stands before it"
    assert [port["name"] for port in container["ports"]] == ["metrics", "probes", "web"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert spec["containers"][1]["securityContext"]["allowPrivilegeEscalation"] is False
    assert "env" not in spec["containers"][1]


def test_the_hook_of_the_pool_is_set_and_one_of_the_template_only_without_it() -> None:
    template = copy.deepcopy(USERS)
    template["spec"]["containers"][0]["env"].append({"name": "PERDURE_BOOTSTRAP", "value": "own:start"})
    assert env(deployment(pool(template=template), DEFAULTS))["PERDURE_BOOTSTRAP"] == "own:start"
    hooked = deployment(pool(template=template, bootstrap="shop.app:start"), DEFAULTS)
    assert env(hooked)["PERDURE_BOOTSTRAP"] == "shop.app:start"
    assert "PERDURE_BOOTSTRAP" not in env(deployment(pool(), DEFAULTS))


def test_a_pool_without_a_hook_keeps_the_version_that_it_had_before_there_were_hooks() -> None:
    assert version_of(pool().spec) == "c7ceb80a"


def test_the_pool_names_its_own_database() -> None:
    manifest = deployment(pool(database={"secretName": "mine", "key": "url"}), DEFAULTS)
    assert env(manifest)["PERDURE_DATABASE_URL"] == {"secretKeyRef": {"name": "mine", "key": "url"}}


def test_the_template_of_the_resource_is_left_alone() -> None:
    resource = pool(template=copy.deepcopy(USERS))
    deployment(resource, DEFAULTS)
    assert resource.spec.template == USERS


OTHER_IMAGE = {"spec": {"containers": [{"name": "app", "image": "shop:2"}]}}


@pytest.mark.parametrize(
    ("change", "new_version"),
    [
        ({"template": OTHER_IMAGE}, True),
        ({"modules": ["shop.flows", "shop.more"]}, True),
        ({"bootstrap": "shop.app:start"}, True),
        ({"slots": 9}, False),
        ({"queues": ["other"]}, False),
        ({"scaling": {"max": 3}}, False),
        ({"suspend": True}, False),
    ],
)
def test_a_version_is_the_code_and_nothing_else(change: dict[str, Any], new_version: bool) -> None:
    assert (version_of(pool(**change).spec) != version_of(pool().spec)) is new_version


def test_workers_on_the_installations_database_are_told_of_its_pooler() -> None:
    pooled = replace(DEFAULTS, database_pooler="transaction")
    assert env(deployment(pool(), pooled))["PERDURE_DATABASE_POOLER"] == "transaction"
    assert "PERDURE_DATABASE_POOLER" not in env(deployment(pool(), DEFAULTS))
    own = pool(database={"secretName": "mine", "key": "url"})
    assert "PERDURE_DATABASE_POOLER" not in env(deployment(own, pooled))


def test_the_manifest_is_applied_again_when_anything_of_ours_changes_and_only_then() -> None:
    def digest(defaults: WorkerDefaults = DEFAULTS, **changes: Any) -> str:
        found: str = deployment(pool(**changes), defaults)["metadata"]["annotations"][MANIFEST_ANNOTATION]
        return found

    assert digest() == digest()
    assert digest() == digest(scaling={"max": 3})
    assert len({digest(), digest(slots=9), digest(queues=["q"]), digest(template=OTHER_IMAGE)}) == 4
    assert digest() != digest(WorkerDefaults("other", "uri", "perdure-worker", 30.0))


def test_names_fit() -> None:
    assert len(deployment_name("p" * POOL_NAME_MAX, version_of(pool().spec))) <= 63
