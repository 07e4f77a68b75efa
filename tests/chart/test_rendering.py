"""The chart renders the same anywhere: without a cluster, twice alike, as in the golden files, free of lint."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.chart import cases
from tests.support import helm


@pytest.mark.parametrize("case", cases.CASES)
def test_it_is_free_of_lint(case: str) -> None:
    values = cases.CI_VALUES[case]
    told = helm.run("lint", helm.APP_CHART, "--strict", "--values", values, "--kube-version", helm.KUBE_VERSION)
    assert "0 chart(s) failed" in told


@pytest.mark.parametrize("case", cases.CASES)
def test_golden(case: str) -> None:
    path = cases.GOLDEN / f"{case}.yaml"
    if cases.UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(cases.rendered(case))
    assert cases.rendered(case) == path.read_text(), "`make golden` writes it anew: read the diff"


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in cases.GOLDEN.iterdir()} == set(cases.CASES)


@pytest.mark.parametrize("case", cases.CASES)
def test_rendering_twice_gives_the_same(case: str) -> None:
    """GitOps compares what it renders with what is there: random values would differ for ever."""
    assert helm.template(values=[cases.CI_VALUES[case]]) == cases.rendered(case)


@pytest.mark.parametrize("case", cases.CASES)
def test_an_upgrade_renders_as_an_installation(case: str) -> None:
    assert helm.template("--is-upgrade", values=[cases.CI_VALUES[case]]) == cases.rendered(case)


def test_no_template_asks_a_cluster_a_clock_or_chance() -> None:
    forbidden = re.compile(
        r"\b(lookup|genCA|genSelfSignedCert|genSignedCert|genPrivateKey|rand[A-Z]\w+|uuidv4|now|htpasswd|bcrypt)\b"
        r"|\.Release\.(Revision|IsInstall|IsUpgrade)|\.Capabilities|helm\.sh/hook"
    )
    for path in (helm.APP_CHART / "templates").rglob("*"):
        if path.is_file() and (found := forbidden.search(path.read_text())):
            pytest.fail(f"{path.relative_to(helm.ROOT)} uses {found[0]}")


def test_every_object_says_where_it_belongs() -> None:
    """Without a namespace in the object, `helm template | kubectl apply` puts it wherever kubectl points."""
    for case in cases.CASES:
        for each in cases.objects(case):
            if each["kind"] != "ClusterRole":
                assert each["metadata"].get("namespace"), f"{case}: {each['kind']} {each['metadata']['name']}"


def test_no_object_is_there_twice() -> None:
    for case in cases.CASES:
        names = [
            (each["apiVersion"], each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
            for each in cases.objects(case)
        ]
        assert len(names) == len(set(names)), case


def test_selectors_never_change() -> None:
    """A Deployment's selector is immutable: one more label in it and no release can be upgraded."""
    found = cases.render(
        {**cases.THROWAWAY, "commonLabels": {"team": "x"}, "podLabels": {"a": "b"}, "image": {"tag": "other"}}
    )
    for component in ("operator", "postgres"):
        selector = {
            "app.kubernetes.io/name": "perdure",
            "app.kubernetes.io/instance": "demo",
            "app.kubernetes.io/component": component,
        }
        deployment = helm.only(found, "Deployment", f"demo-perdure-{component}")
        assert deployment["spec"]["selector"] == {"matchLabels": selector}
        assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
        assert helm.only(found, "Service", f"demo-perdure-{component}")["spec"]["selector"] == selector


@pytest.mark.parametrize(
    ("release", "operator"),
    [
        ("demo", "demo-perdure-operator"),
        ("perdure", "perdure-operator"),
        ("my-perdure", "my-perdure-operator"),
        ("a" * 53, "a" * 50 + "-operator"),
    ],
)
def test_names_come_from_the_release_and_fit(release: str, operator: str) -> None:
    found = cases.render(cases.THROWAWAY, release=release)
    names = {each["metadata"]["name"] for each in found}
    assert operator in names
    assert max(map(len, names)) <= 63


def test_common_labels_and_annotations_are_everywhere() -> None:
    for each in cases.objects("everything"):
        if each["kind"] != "ConfigMap":  # the extra object, which is its author's business
            assert each["metadata"]["labels"]["team"] == "platform"
            assert each["metadata"]["annotations"]["example.com/owner"] == "platform@example.com"


def test_images_by_tag_and_digest_and_registry() -> None:
    def image(values: dict[str, Any]) -> str:
        found = helm.only(cases.render({**cases.SMALLEST, **values}), "Deployment")
        text: str = found["spec"]["template"]["spec"]["containers"][0]["image"]
        return text

    digest = "sha256:" + "0" * 64
    assert image({}) == "perdure-operator:0.1.0"
    assert image({"image": {"tag": "x", "digest": digest}}) == f"perdure-operator:x@{digest}"
    assert image({"global": {"imageRegistry": "r.example.com"}}) == "r.example.com/perdure-operator:0.1.0"
    own = {"global": {"imageRegistry": "r.example.com"}, "image": {"registry": "own.example.com:5000"}}
    assert image(own) == "own.example.com:5000/perdure-operator:0.1.0"


def test_pull_secrets_reach_every_pod_and_the_pods_of_workers() -> None:
    found = cases.render({**cases.THROWAWAY, "imagePullSecrets": [{"name": "pull"}]})
    for name, pod in cases.pods(found).items():
        assert pod["imagePullSecrets"] == [{"name": "pull"}], name
    assert helm.only(found, "ServiceAccount", "perdure-worker")["imagePullSecrets"] == [{"name": "pull"}]


def test_a_disruption_budget_never_blocks_a_drain_by_default() -> None:
    budget = helm.only(
        cases.render({**cases.SMALLEST, "podDisruptionBudget": {"enabled": True}}), "PodDisruptionBudget"
    )
    assert budget["spec"]["maxUnavailable"] == 1
    assert "minAvailable" not in budget["spec"]


def test_the_number_of_operators_can_be_left_to_others() -> None:
    """Server-side apply, which Helm 4 uses, would take it back from whoever has scaled the Deployment."""
    assert "replicas" not in helm.only(cases.render({**cases.SMALLEST, "replicaCount": None}), "Deployment")["spec"]
    assert helm.only(cases.render({**cases.SMALLEST, "replicaCount": 0}), "Deployment")["spec"]["replicas"] == 0


def test_the_packaged_chart_is_whole(tmp_path: Path) -> None:
    """What .helmignore leaves out is not needed: the alerts come from files beside the templates."""
    helm.run("package", helm.APP_CHART, "--destination", tmp_path)
    (archive,) = tmp_path.iterdir()
    assert helm.template(chart=archive, values=[cases.CI_VALUES["everything"]]) == cases.rendered("everything")


def test_no_definitions_where_helm_would_never_upgrade_them() -> None:
    for chart in (helm.APP_CHART, helm.CRD_CHART):
        assert not (chart / "crds").exists()


def test_the_plain_installation_is_small() -> None:
    """What is off by default stays off: nothing that needs another operator, nothing of the cluster."""
    kinds = sorted(each["kind"] for each in cases.render(cases.SMALLEST))
    accounts_and_rights = ["Role", "Role", "RoleBinding", "RoleBinding", "ServiceAccount", "ServiceAccount"]
    assert kinds == sorted(["Deployment", "Service", *accounts_and_rights])
