"""A whole cluster for the end-to-end tier: the one of `hack/cluster`, and what a test does to it from outside.

tests/cluster/conftest.py offers the fixtures. `cluster` is for tests of the cluster and for faults: a signal to a
pod's main process arrives from outside its container, as from a kernel that is out of memory, so no shell, no `kill`
and no privilege is needed in it. What talks to the API server goes through `Kubectl`.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from demolib.kubectl import Kubectl
from localcluster import build, images
from localcluster.console import Failure, Impossible
from localcluster.engines import Image
from localcluster.providers import Provider, choose
from localcluster.settings import Settings

from tests.support.tiers import unavailable

TIER = "cluster"
# Has Python and nothing that would run by itself: what a test wants a pod to do is one line of it.
IMAGE = Image("perdure-worker", images.DOCKERFILES["worker"], "dev")
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@dataclass(frozen=True)
class Cluster:
    provider: Provider
    program: Path

    def kubectl(self, namespace: str = "default") -> Kubectl:
        return Kubectl(self.program, self.provider.kubeconfig, namespace)

    @contextmanager
    def new_namespace(self) -> Iterator[Kubectl]:
        """kubectl in a namespace of the test's own, which admits only pods without privileges."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
        admin = self.kubectl()
        created = admin.run("create", "--filename=-", "--output=name", stdin=json.dumps(body))
        name = created.strip().removeprefix("namespace/")
        admin.run("label", "namespace", name, RESTRICTED)
        try:
            yield self.kubectl(name)
        finally:
            admin.run("delete", "namespace", name, "--wait=false")

    def signal(self, kubectl: Kubectl, pod: str, signal: str, *, container: str | None = None) -> None:
        """Send "KILL", "STOP", "CONT", … to the main process of a container, the pod's first one unless named."""
        statuses = kubectl.get("pod", pod)["status"]["containerStatuses"]
        status = next(status for status in statuses if container in (None, status["name"]))
        try:
            self.provider.signal(status["containerID"].partition("://")[2], signal)
        except Impossible as reason:
            unavailable(TIER, str(reason))

    @contextmanager
    def frozen(self, kubectl: Kubectl, pod: str, *, container: str | None = None) -> Iterator[None]:
        """The main process stands still until the block is left, as on a machine that hangs."""
        self.signal(kubectl, pod, "STOP", container=container)
        try:
            yield
        finally:
            self.signal(kubectl, pod, "CONT", container=container)

    def diagnostics(self, namespace: str) -> str:
        """What one would look at first after a failure in this namespace."""
        kubectl = self.kubectl(namespace)
        looks = [
            ["get", "all", "--output=wide"],
            ["get", "events", "--sort-by=.lastTimestamp"],
            ["describe", "pods"],
        ]
        with suppress(Failure):
            pods = kubectl.run("get", "pods", "--output=name").split()
            looks += [["logs", pod, "--all-containers", "--prefix", "--tail=50"] for pod in pods]
        found = []
        for arguments in looks:
            with suppress(subprocess.TimeoutExpired):
                done = kubectl.ask(*arguments)
                found.append(f"$ kubectl {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        return "\n".join(found)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """It is up, and goes away after the session if it was not there before."""
    settings = Settings.from_environment()
    try:
        provider = choose(settings)
        was_up = provider.is_up()
        provider.up()
    except Impossible as reason:
        unavailable(TIER, str(reason))
    try:
        yield Cluster(provider, build.tool(settings, "kubectl"))
    finally:
        if not was_up:
            provider.down()


@pytest.fixture(scope="session")
def python_image(cluster: Cluster) -> str:
    """An image with Python that the cluster has."""
    archives = images.build(Settings.from_environment(), [IMAGE])
    try:
        cluster.provider.load_image(archives)
    except Impossible as reason:
        unavailable(TIER, str(reason))
    return IMAGE.reference


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Kubectl]:
    """kubectl in a namespace of this test alone."""
    with cluster.new_namespace() as kubectl:
        yield kubectl
