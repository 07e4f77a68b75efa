"""The local cluster's decisions: addresses, versions, and what of a machine's pip settings an image build sees."""

import re
from pathlib import Path

import pytest
from localcluster import versions
from localcluster.console import Failure, Impossible
from localcluster.engines import ROOT
from localcluster.existing import ExistingCluster
from localcluster.hostpip import CA_IN_BUILD, HostPip
from localcluster.images import CONTEXT
from localcluster.local import LocalCluster
from localcluster.providers import choose
from localcluster.settings import Settings


def test_addresses_come_from_the_environment() -> None:
    settings = Settings.from_environment({"PERDURE_CACHE": "/cache", "PERDURE_CLUSTER_SUBNET": "10.9.0.0/16"})
    assert str(settings.node_address) == "10.9.0.1"
    assert str(settings.host_address) == "10.9.0.2"
    assert settings.state == Path("/cache/perdure/cluster")


def test_a_subnet_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(Failure, match="PERDURE_CLUSTER_SUBNET"):
        Settings.from_environment({"PERDURE_CLUSTER_SUBNET": "10.9.0.1/16"})


def test_the_modules_of_kubernetes_move_together() -> None:
    text = (versions.GO_MODULES / "kubernetes" / "go.mod").read_text()
    replaced = re.findall(r"=> k8s\.io/\S+ (v\S+)", text)
    assert replaced
    assert set(replaced) == {versions.KUBERNETES.replace("v1.", "v0.", 1)}


def test_a_version_that_nobody_requires_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"example\.org/none"):
        versions.required("etcd", "example.org/none")


def test_kubeconfig_decides_and_our_own_is_not_taken_for_a_strangers(tmp_path: Path) -> None:
    settings = Settings(tmp_path)
    ours = LocalCluster(settings)
    theirs = choose(settings, env={"KUBECONFIG": str(tmp_path / "other")})
    assert isinstance(theirs, ExistingCluster)
    with pytest.raises(Impossible):
        theirs.load_image([tmp_path / "image.tar"])
    with pytest.raises(Failure, match="several files"):
        choose(settings, env={"KUBECONFIG": "/a:/b"})
    with pytest.raises(Failure, match="PERDURE_CLUSTER_PROVIDER is kind or local"):
        choose(settings, env={"KUBECONFIG": str(ours.kubeconfig), "PERDURE_CLUSTER_PROVIDER": "other"})


def test_the_build_sees_where_packages_come_from_and_nothing_else(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    configuration = tmp_path / "pip.conf"
    configuration.write_text(f"[global]\nindex-url = https://old.example\ncert = {bundle}\nuser = true\n")
    found = HostPip.read(
        {
            "PIP_CONFIG_FILE": str(configuration),
            "PIP_INDEX_URL": "https://index.example/simple",
            "PIP_FIND_LINKS": f"{tmp_path} https://links.example",
        }
    )
    assert found.ca_bundle == bundle
    assert found.folders == (tmp_path,)
    lines = found.configuration().splitlines()
    assert lines[0] == "[global]"
    assert "index-url = https://index.example/simple" in lines
    assert f"cert = {CA_IN_BUILD}" in lines
    assert not any(line.startswith("user") for line in lines)


def test_what_an_image_is_made_of_is_what_its_engine_is_given() -> None:
    given = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert given == {*CONTEXT, "requirements*.lock"}
