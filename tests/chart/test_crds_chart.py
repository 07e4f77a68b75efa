"""The chart of the definitions: the files in crds/ with Helm's marks, kept when the release goes."""

import json
import tomllib
from typing import Any

import pytest
import yaml

from tests.support import helm
from tests.support.helm import CRD_CHART, ROOT, HelmFailed, Resource

KEEP = {"helm.sh/resource-policy": "keep"}
# `kubectl apply` writes the object into an annotation, which may have 262144 bytes.
MOST_BYTES = 200_000


def rendered(values: dict[str, Any] | None = None) -> dict[str, Resource]:
    found = helm.objects(helm.template(chart=CRD_CHART, overrides=values))
    assert {each["kind"] for each in found} == {"CustomResourceDefinition"}
    return {each["metadata"]["name"]: each for each in found}


def test_it_is_free_of_lint() -> None:
    assert "0 chart(s) failed" in helm.run("lint", CRD_CHART, "--strict", "--kube-version", helm.KUBE_VERSION)


def test_it_holds_exactly_the_plain_definitions() -> None:
    plain = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    found = rendered()
    assert found.keys() == {each["metadata"]["name"] for each in plain}
    for each in plain:
        assert found[each["metadata"]["name"]]["spec"] == each["spec"]


def test_definitions_stay_when_the_release_goes() -> None:
    """The mark must be in the object from its installation on: one that is added by hand later has no effect."""
    for name, each in rendered().items():
        assert each["metadata"]["annotations"].items() >= KEEP.items(), name
    for name, each in rendered({"keep": False}).items():
        assert not KEEP.items() <= each["metadata"].get("annotations", {}).items(), name


def test_labels_and_annotations_of_ones_own() -> None:
    for each in rendered({"commonLabels": {"team": "x"}, "commonAnnotations": {"example.com/a": "b"}}).values():
        assert each["metadata"]["labels"]["team"] == "x"
        assert each["metadata"]["annotations"].items() >= {"example.com/a": "b", **KEEP}.items()


def test_they_are_small_enough_for_every_way_of_applying() -> None:
    for name, each in rendered().items():
        assert len(json.dumps(each)) < MOST_BYTES, name


def test_a_wrong_value_is_refused() -> None:
    with pytest.raises(HelmFailed, match="additional properties 'kep' not allowed"):
        rendered({"kep": True})


def test_both_charts_want_the_same_kubernetes_and_have_the_same_version() -> None:
    both = [yaml.safe_load((chart / "Chart.yaml").read_text()) for chart in (helm.APP_CHART, CRD_CHART)]
    for key in ("version", "appVersion", "kubeVersion"):
        assert both[0][key] == both[1][key]


def test_the_charts_have_the_version_of_the_distribution() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((helm.APP_CHART / "Chart.yaml").read_text())["appVersion"] == version
