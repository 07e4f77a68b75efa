"""A WorkerPool on a real API server: the scale subresource, its pod template, its status."""

import json

import pytest
from perdure.resources.kinds import WORKER_POOL
from perdure.resources.podtemplate import convert
from perdure.resources.structural import snapshot
from perdure.resources.workerpool import POD_TEMPLATE_FILE, WorkerPoolResource
from perdure.resources.workerpool_status import WorkerPoolStatus

from tests.support.controlplane import ApiError, RunningControlPlane
from tests.support.crds import MERGE_PATCH, TEMPLATE, Object, Objects, causes, pool_spec

STATUS: Object = {
    "observedGeneration": 1,
    "replicas": 2,
    "readyReplicas": 1,
    "desired": 3,
    "selector": "perdure.dev/pool=p",
    "currentVersion": "a1b2c3d4",
    "versions": [{"name": "a1b2c3d4", "replicas": 2, "ready": 1, "runs": 5}],
    "backlog": 7,
    "message": "3 pods for 12 runs",
    "conditions": [
        {
            "type": "Ready",
            "status": "False",
            "reason": "WaitingForWorkers",
            "message": "starting",
            "lastTransitionTime": "2026-11-30T12:00:00Z",
            "observedGeneration": 1,
        }
    ],
}


@pytest.fixture
def pools(definitions: RunningControlPlane) -> Objects:
    return Objects(definitions, definitions.new_namespace(), WORKER_POOL)


def test_defaults_are_those_of_the_models(pools: Objects) -> None:
    stored = pools.create(pool_spec())
    assert stored["spec"]["scaling"] == {"min": 0, "max": 10, "idleAfter": "5m", "stabilisation": "1m"}
    assert stored["spec"]["queues"] == ["default"]
    by_models = WorkerPoolResource.parse({"metadata": {"name": "x"}, "spec": pool_spec()})
    assert WorkerPoolResource.parse(stored).spec == by_models.spec


def test_everything_of_a_pool_can_be_changed(pools: Objects) -> None:
    name = pools.create(pool_spec(), "p")["metadata"]["name"]
    template = {"spec": {"containers": [{"name": "worker", "image": "example.com/worker:2"}]}}
    change = {
        "template": template,
        "queues": ["fast"],
        "slots": 8,
        "suspend": True,
        "modules": ["other"],
        "bootstrap": "a:b",
    }
    assert pools.merge(name, {"spec": change})["metadata"]["generation"] == 2


def test_scaling_by_hand_goes_through_the_scale_subresource(definitions: RunningControlPlane, pools: Objects) -> None:
    pools.create(pool_spec(), "p")
    definitions.kubectl("-n", pools.namespace, "scale", "workerpool/p", "--replicas=3")
    assert pools.get("p")["spec"]["replicas"] == 3
    scale = definitions.request("GET", WORKER_POOL.path(pools.namespace, "p", "scale"))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 0)


def test_an_autoscaler_sees_the_pods_and_how_to_find_them(definitions: RunningControlPlane, pools: Objects) -> None:
    made = pools.create(pool_spec(replicas=1), "p")
    pools.write_status(made, STATUS)
    scale = definitions.request("GET", WORKER_POOL.path(pools.namespace, "p", "scale"))
    assert scale["status"] == {"replicas": 2, "selector": "perdure.dev/pool=p"}
    path = WORKER_POOL.path(pools.namespace, "p", "scale")
    definitions.request("PATCH", path, {"spec": {"replicas": 4}}, content_type=MERGE_PATCH)
    assert pools.get("p")["spec"]["replicas"] == 4


def test_known_limit_without_replicas_there_is_no_scale_to_read(
    definitions: RunningControlPlane, pools: Objects
) -> None:
    """An autoscaler reads before it writes, so it needs `spec.replicas` to be set once; `kubectl scale` does not."""
    pools.create(pool_spec(), "p")
    with pytest.raises(ApiError, match=r"spec\.replicas.*does not exist"):
        definitions.request("GET", WORKER_POOL.path(pools.namespace, "p", "scale"))


def test_the_scale_subresource_keeps_the_bounds(definitions: RunningControlPlane, pools: Objects) -> None:
    pools.create(pool_spec(), "p")
    with pytest.raises(ApiError) as caught:
        path = WORKER_POOL.path(pools.namespace, "p", "scale")
        definitions.request("PATCH", path, {"spec": {"replicas": 1001}}, content_type=MERGE_PATCH)
    assert "should be less than or equal to 1000" in str(causes(caught.value))


def test_the_status_of_the_models_is_taken_as_it_is(pools: Objects) -> None:
    WorkerPoolStatus.model_validate(STATUS)
    made = pools.create(pool_spec(), "p")
    assert pools.write_status(made, STATUS)["status"] == STATUS


def test_two_conditions_of_one_type_are_refused(pools: Objects) -> None:
    made = pools.create(pool_spec(), "p")
    with pytest.raises(ApiError) as caught:
        pools.write_status(made, {**STATUS, "conditions": STATUS["conditions"] * 2})
    assert "Duplicate value" in str(causes(caught.value))


def test_the_pod_template_is_that_of_this_servers_pods(definitions: RunningControlPlane) -> None:
    """`kubectl get --raw /openapi/v2 | python -m perdure.resources.podtemplate` writes the file anew."""
    version = definitions.request("GET", "/version")
    if not POD_TEMPLATE_FILE.endswith(f"-{version['major']}.{version['minor'].rstrip('+')}.json"):
        pytest.skip(f"reconcile: {POD_TEMPLATE_FILE} is of another version than the server, {version['gitVersion']}")
    assert convert(definitions.request("GET", "/openapi/v2")) == snapshot(POD_TEMPLATE_FILE)


def test_a_pod_template_of_every_kind_of_field_makes_a_deployment(
    definitions: RunningControlPlane, pools: Objects
) -> None:
    """What the pool takes, a Deployment takes too, unchanged."""
    spec = {
        **TEMPLATE["spec"],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": None}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ],
        "volumes": [
            {"name": "a", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
            {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
        ],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    spec["volumes"][1]["ephemeral"]["volumeClaimTemplate"]["spec"]["resources"] = {"requests": {"storage": "1Gi"}}
    spec["containers"] = [
        {
            "name": "worker",
            "image": "example.com/worker:1",
            "resources": {"requests": {"cpu": 0.5, "memory": "64Mi"}, "limits": {"cpu": 1}},
            "ports": [{"containerPort": 80}],
            "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "sleep ${X:-{{1}}}"]}}},
            "startupProbe": {"httpGet": {"path": "/", "port": 80}},
        }
    ]
    del spec["tolerations"][0]["tolerationSeconds"]
    stored = pools.create(pool_spec(template={"metadata": {"labels": {"a": "b"}}, "spec": spec}))
    template = stored["spec"]["template"]
    assert json.loads(json.dumps(template["spec"]["nodeSelector"])) == {"a": "b"}
    assert template["metadata"] == {"labels": {"a": "b"}}
    deployment = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    path = f"/apis/apps/v1/namespaces/{pools.namespace}/deployments?fieldValidation=Strict"
    made = definitions.request("POST", path, deployment)
    assert made["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "500m",
        "memory": "64Mi",
    }
