"""What a person sees with kubectl: installation, columns, selectors, explanations; and the CRD chart."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from perdure.resources import crdgen
from perdure.resources.kinds import KINDS, WORKER_POOL, WORKFLOW, Kind
from perdure.resources.projection import project

from tests.support import helm
from tests.support.controlplane import ApiError, RunningControlPlane
from tests.support.crds import Object, Objects, established, pool_spec
from tests.unit.resources.views import definition, run, source, step

ROOT = Path(__file__).resolve().parents[2]
MAX_JSON = 200_000
EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)


@pytest.fixture
def workflows(definitions: RunningControlPlane) -> Objects:
    return Objects(definitions, definitions.new_namespace())


@pytest.fixture(scope="module")
def empty() -> Iterator[RunningControlPlane]:
    """An API server that knows nothing of us."""
    with RunningControlPlane(controllers=False) as plane:
        yield plane


@EVERY_KIND
def test_the_server_has_nothing_to_say_against_the_schema(definitions: RunningControlPlane, kind: Kind) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.crd_name}"
    found = definitions.request("GET", path)
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    stored = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert stored == crdgen.schema(kind)
    assert len(json.dumps(found["spec"])) < MAX_JSON


def test_every_way_of_applying_works_and_leads_to_the_same(empty: RunningControlPlane) -> None:
    """Client-side apply keeps a copy in an annotation, which must not be too large."""
    crds = ROOT / "crds"
    empty.kubectl("apply", "-f", crds)
    established(empty)
    assert empty.kubectl("apply", "-f", crds).count("unchanged") == len(KINDS)
    empty.kubectl("apply", "--server-side", "--force-conflicts", "-f", crds)
    empty.kubectl("replace", "-f", crds)
    empty.kubectl("delete", "-f", crds)


@pytest.mark.timeout(300)
def test_the_chart_installs_the_definitions_and_keeps_them(empty: RunningControlPlane) -> None:
    install = ("--kubeconfig", empty.kubeconfig, "--namespace", "default")
    helm.run("upgrade", "--install", "perdure-crds", helm.CRD_CHART, *install)
    established(empty)
    for kind in KINDS:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.crd_name}"
        stored = empty.request("GET", path)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        assert stored == crdgen.schema(kind)
    workflows = Objects(empty, "default")
    workflows.create({"workflow": "a"}, "kept")
    helm.run("uninstall", "perdure-crds", *install)
    assert workflows.get("kept")
    helm.run("upgrade", "--install", "perdure-crds", helm.CRD_CHART, "--set", "keep=false", *install)
    assert workflows.get("kept")
    established(empty)
    # The server looks every five seconds whether the last resource is gone, and gives itself a minute for it.
    helm.run("uninstall", "perdure-crds", *install, "--wait", seconds=200)
    with pytest.raises(ApiError):
        workflows.get("kept")


def test_the_chart_is_free_of_lint_and_knows_its_values() -> None:
    assert "0 chart(s) failed" in helm.run("lint", helm.CRD_CHART, "--strict", "--kube-version", helm.KUBE_VERSION)
    with pytest.raises(helm.HelmFailed, match="keeep"):
        helm.template(chart=helm.CRD_CHART, overrides={"keeep": True})


def test_labels_and_annotations_of_the_chart_never_displace_its_own() -> None:
    overrides = {"commonLabels": {"team": "x"}, "commonAnnotations": {"helm.sh/resource-policy": "none", "a": "b"}}
    for kept in (True, False):
        for each in helm.objects(helm.template(chart=helm.CRD_CHART, overrides={**overrides, "keep": kept})):
            metadata = each["metadata"]
            assert metadata["labels"]["team"] == "x"
            assert metadata["annotations"] == {"helm.sh/resource-policy": "keep" if kept else "none", "a": "b"}


EXAMPLES = [
    "examples/order/workflow.yaml",
    "examples/declared/workflow.yaml",
    "examples/approval/workflow.yaml",
    "examples/approval/signal.yaml",
    "examples/fanout/workflow.yaml",
    "examples/reminder/workflow.yaml",
    "examples/reminder/signal.yaml",
]


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_examples_apply(definitions: RunningControlPlane, path: str) -> None:
    namespace = definitions.new_namespace()
    assert "created" in definitions.kubectl("-n", namespace, "apply", "-f", ROOT / path)


@pytest.mark.parametrize("pool", ["approval", "cron", "fanout", "reminder"])
def test_the_pools_of_the_examples_apply(definitions: RunningControlPlane, pool: str) -> None:
    namespace = definitions.new_namespace()
    assert "workerpool" in definitions.kubectl("-n", namespace, "apply", "-k", ROOT / "examples" / pool)


def test_the_example_pool_applies_with_its_code(definitions: RunningControlPlane) -> None:
    namespace = definitions.new_namespace()
    out = definitions.kubectl("-n", namespace, "apply", "-k", ROOT / "examples/order")
    assert out.split("\n")[:2] == ["configmap/order-flows created", "workerpool.perdure.dev/orders created"]
    code = definitions.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/order-flows")["data"]["flows.py"]
    assert code == (ROOT / "examples/order/flows.py").read_text()


# -- columns


def table(plane: RunningControlPlane, *arguments: str) -> list[list[str]]:
    """Cells of what kubectl prints; columns are two or more spaces apart."""
    lines = plane.kubectl("get", *arguments).splitlines()
    starts = [0] + [at for at in range(2, len(lines[0])) if lines[0][at - 2 : at] == "  " and lines[0][at] != " "]
    return [[line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)] for line in lines]


def test_the_columns_of_a_workflow(definitions: RunningControlPlane, workflows: Objects) -> None:
    made = workflows.create({"steps": [{"name": "a", "task": "t"}, {"name": "b", "task": "t"}]}, "w")
    steps = step(0, name="a"), step(1, name="b")
    workflows.write_status(made, project(source(run(definition=definition("a", "b")), *steps)))
    head, row = table(definitions, "-n", workflows.namespace, "pwf", "-o", "wide")
    assert head == ["NAME", "STATUS", "PROGRESS", "WAITING", "AGE", "POOL", "WORKER", "VERSION", "REASON"]
    assert row[:4] == ["w", "Running", "2/2", ""]
    assert row[5:] == ["default", "orders-a1b2c3d4-x7k2p", "a1b2c3d4", "Running"]
    assert table(definitions, "-n", workflows.namespace, "workflows")[0] == head[:5]


def test_the_columns_of_a_pool(definitions: RunningControlPlane, workflows: Objects) -> None:
    pools = Objects(definitions, workflows.namespace, WORKER_POOL)
    made = pools.create(pool_spec(), "p")
    condition = {"type": "Ready", "status": "True", "reason": "WorkersReady", "message": ""}
    observed: Object = {"observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "desired": 2, "backlog": 0}
    pools.write_status(made, {**observed, "currentVersion": "a1b2c3d4", "conditions": [condition]})
    head, row = table(definitions, "-n", pools.namespace, "pwp", "-o", "wide")
    assert head == ["NAME", "READY", "DESIRED", "VERSION", "BACKLOG", "AGE", "REASON"]
    assert (row[:5], row[6]) == (["p", "2", "2", "a1b2c3d4", "0"], "WorkersReady")


def test_one_word_gets_everything_of_ours(definitions: RunningControlPlane, workflows: Objects) -> None:
    workflows.create({"workflow": "a"}, "w")
    Objects(definitions, workflows.namespace, WORKER_POOL).create(pool_spec(), "p")
    out = definitions.kubectl("-n", workflows.namespace, "get", "perdure", "-o", "name")
    assert sorted(out.split()) == ["workerpool.perdure.dev/p", "workflow.perdure.dev/w"]


def test_workflows_are_selected_by_pool_and_phase_on_the_server(
    definitions: RunningControlPlane, workflows: Objects
) -> None:
    for name, pool in (("a", "fast"), ("b", "fast"), ("c", "slow")):
        made = workflows.create({"workflow": "a", "workerPool": pool}, name)
        if name != "b":
            workflows.write_status(made, project(source(run())))

    def names(selector: str) -> list[str]:
        found = definitions.request("GET", f"{WORKFLOW.path(workflows.namespace)}?fieldSelector={selector}")
        return [each["metadata"]["name"] for each in found["items"]]

    assert names("spec.workerPool%3Dfast") == ["a", "b"]
    assert names("status.phase%3DRunning") == ["a", "c"]
    assert names("spec.workerPool%3Dfast,status.phase%3DRunning") == ["a"]
    assert names("spec.workerPool!%3Dfast") == ["c"]


# -- kubectl explain


@EVERY_KIND
def test_every_field_is_explained(definitions: RunningControlPlane, kind: Kind) -> None:
    """One `kubectl explain` per object with fields: each of its fields is there with its text."""
    properties = crdgen.schema(kind)["properties"]
    for path, schema in objects(properties["spec"], f"{kind.plural}.spec"):
        told = " ".join(definitions.kubectl("explain", path).split())
        for name, field in schema["properties"].items():
            assert name in told
            assert " ".join(field["description"].split()) in told, f"{path}.{name}"
    told = " ".join(definitions.kubectl("explain", f"{kind.plural}.status").split())
    for field in properties["status"]["properties"].values():
        assert " ".join(field["description"].split()) in told


def objects(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if "properties" in schema and path != "workerpools.spec.template":
        yield path, schema
        for name, field in schema["properties"].items():
            yield from objects(field.get("items", field), f"{path}.{name}")


def test_the_fields_of_the_pod_template_are_shown(definitions: RunningControlPlane) -> None:
    assert "imagePullPolicy" in definitions.kubectl("explain", "workerpool.spec.template.spec.containers")


def test_the_generated_files_are_those_in_the_repository() -> None:
    """What is installed here is what users install."""
    for kind in KINDS:
        assert yaml.safe_load((ROOT / f"crds/perdure.dev_{kind.plural}.yaml").read_text()) == crdgen.crd(kind)
