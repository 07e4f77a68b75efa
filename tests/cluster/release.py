"""Perdure as a user installs it: a cluster, both images, both charts, in a namespace that admits restricted pods only.

`release` is shared by all tests of the tier. Use names of your own for pools and workflows in it, and take nothing
away that another test may need. A conftest offers it by importing the fixture.
"""

import base64
import csv
import io
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from demolib.kubectl import Kubectl
from demolib.proof import PSQL
from localcluster import images
from localcluster.console import Failure, Impossible
from localcluster.engines import Image
from localcluster.settings import Settings

from tests.support import helm
from tests.support.cluster import RESTRICTED, Cluster
from tests.support.helm import ROOT
from tests.support.tiers import unavailable

NAMESPACE = "perdure-e2e"
NAME = "perdure"
CRDS_NAME = "perdure-crds"
# Where the images are pulled from in a cluster that is not ours: PERDURE_IMAGES=REGISTRY/PATH, as for `make demo`.
REGISTRY = os.environ.get("PERDURE_IMAGES", "")
TAG = os.environ.get("PERDURE_IMAGES_TAG", "dev")
IMAGE_VALUES = (
    f"--set=image.repository={f'{REGISTRY}/perdure-operator'.removeprefix('/')}",
    f"--set=image.tag={TAG}",
)
VALUES = ("--set=database.throwaway.enabled=true", *IMAGE_VALUES)
LOGS = ROOT / ".cache" / "test" / "cluster"
INSTALL_SECONDS = 300


@dataclass(frozen=True)
class Release:
    """The installed release. `kubectl` acts in its namespace; `operator`, `postgres` name its Deployments."""

    cluster: Cluster
    kubectl: Kubectl
    namespace: str = NAMESPACE
    operator: str = f"deployment/{NAME}-operator"
    postgres: str = f"deployment/{NAME}-postgres"
    worker_image: str = f"{REGISTRY}/perdure-worker:{TAG}".removeprefix("/")

    def psql(self, query: str, **variables: str) -> list[dict[str, str]]:
        """The rows of one query, in which :'name' stands for a variable. NULL is an empty text."""
        settings = [f"--set={name}={value}" for name, value in variables.items()]
        in_pod = ["exec", "--stdin", self.postgres, "--", "python", "-c", PSQL]
        options = ["--csv", "--quiet", "--set=ON_ERROR_STOP=1"]
        answer = self.kubectl.run(*in_pod, *options, *settings, stdin=query)
        return list(csv.DictReader(io.StringIO(answer)))

    def upgrade(self, *values: str) -> None:
        """`helm upgrade --wait` with these values besides those of the installation. Give them back at the end."""
        helm_install(self.kubectl, NAME, helm.APP_CHART, *VALUES, *values)

    def story(self, workflow: str) -> str:
        """What one would look at when a run does not do what it should, for the message of a failing test."""
        looks = [
            ["get", "workflow", workflow, "--output=yaml"],
            ["get", "pods,workerpools", "--output=wide"],
            ["logs", self.operator, "--tail=30"],
            ["logs", "--selector=perdure.dev/pool", "--prefix", "--tail=30"],
        ]
        answers = [(look, self.kubectl.ask(*look)) for look in looks]
        return "\n".join(f"$ kubectl {' '.join(look)}\n{done.stdout}{done.stderr}" for look, done in answers)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of its Postgres for connections from here, for as long as the block lasts."""
        secret = self.kubectl.get("secret", f"{NAME}-database")
        password = base64.b64decode(secret["data"]["password"]).decode()
        with self._forwarding(f"service/{NAME}-postgres", 5432) as port:
            yield f"postgresql://perdure:{password}@127.0.0.1:{port}/perdure?sslmode=disable"

    @contextmanager
    def api_proxy(self) -> Iterator[str]:
        """The URL of the API server as administrator, over plain HTTP on this machine."""
        with self._serving("proxy", "--port=0") as line:
            yield f"http://{line.rpartition(' ')[2].strip()}"

    def worker_pool(self, name: str, source: Path, **spec: Any) -> None:
        """Apply a WorkerPool whose pods import the module in `source`. `spec` adds to the spec that is made here."""
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {source.name: source.read_text()},
        }
        container = {
            "name": "worker",
            "image": self.worker_image,
            "env": [{"name": "PYTHONPATH", "value": "/flows"}],
            "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}},
            "volumeMounts": [{"name": "flows", "mountPath": "/flows", "readOnly": True}],
        }
        pod = {"containers": [container], "volumes": [{"name": "flows", "configMap": {"name": name}}]}
        pool = {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "WorkerPool",
            "metadata": {"name": name},
            "spec": {"modules": [source.stem], "template": {"spec": pod}, **spec},
        }
        self.kubectl.apply([config_map, pool])

    @contextmanager
    def _forwarding(self, target: str, port: int) -> Iterator[int]:
        with self._serving("port-forward", "--address=127.0.0.1", target, f":{port}") as line:
            # "Forwarding from 127.0.0.1:40123 -> 5432"
            yield int(line.partition(" -> ")[0].rpartition(":")[2])

    @contextmanager
    def _serving(self, *arguments: str) -> Iterator[str]:
        """A kubectl that goes on for as long as the block lasts; gives the line in which it says where it listens."""
        process = subprocess.Popen(
            [self.cluster.program, "--namespace", self.namespace, *arguments],
            env=self.kubectl.env,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, f"kubectl {' '.join(arguments)} ended with {process.wait()}"
            yield line
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture(scope="session")
def release(cluster: Cluster) -> Iterator[Release]:
    """Installed once for the session and removed at its end."""
    try:
        _load_images(cluster)
    except Impossible as reason:
        unavailable("cluster", str(reason))
    kubectl = cluster.kubectl(NAMESPACE)
    _remove(kubectl)
    definitions_are_ours = not _definitions(kubectl)
    try:
        kubectl.run("create", "namespace", NAMESPACE)
        kubectl.run("label", "namespace", NAMESPACE, RESTRICTED)
        _install(kubectl, definitions_are_ours=definitions_are_ours)
        yield Release(cluster, kubectl)
    finally:
        _keep_logs(kubectl)
        _remove(kubectl)
        if definitions_are_ours:
            kubectl.run("delete", "customresourcedefinitions", *_definitions(kubectl), "--timeout=60s", seconds=90)


def _load_images(cluster: Cluster) -> None:
    """`hack/test` has done so already; then nothing is built again."""
    if not REGISTRY:
        wanted = [Image(f"perdure-{which}", path, TAG) for which, path in images.DOCKERFILES.items()]
        cluster.provider.load_image(images.build(Settings.from_environment(), wanted))


def _install(kubectl: Kubectl, *, definitions_are_ours: bool) -> None:
    if definitions_are_ours:
        helm_install(kubectl, CRDS_NAME, helm.CRD_CHART)
    else:
        # Those of another release, of the demo for example: brought up to date, and left to it.
        rendered = helm.template(chart=helm.CRD_CHART)
        kubectl.run("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=rendered)
    helm_install(kubectl, NAME, helm.APP_CHART, *VALUES)


def helm_install(kubectl: Kubectl, name: str, chart: Path, *values: str) -> None:
    """Install or upgrade in kubectl's namespace; returns when all pods are ready."""
    wait = ["--wait", f"--timeout={INSTALL_SECONDS}s"]
    _helm(kubectl, "upgrade", "--install", name, chart, *wait, *values, seconds=INSTALL_SECONDS + 60)


def helm_uninstall(kubectl: Kubectl, name: str) -> None:
    """Remove it from kubectl's namespace if it is there; returns when its objects are gone."""
    _helm(kubectl, "uninstall", name, "--wait", "--ignore-not-found", seconds=120)


def _helm(kubectl: Kubectl, *arguments: str | Path, seconds: float) -> None:
    where = [f"--namespace={kubectl.namespace}", f"--kubeconfig={kubectl.env['KUBECONFIG']}"]
    helm.run(*arguments, *where, seconds=seconds)


def _definitions(kubectl: Kubectl) -> list[str]:
    """Names of our definitions that the cluster has."""
    listed = kubectl.run("get", "customresourcedefinitions", "--output=name")
    return [name.partition("/")[2] for name in listed.split() if name.endswith(".perdure.dev")]


def _remove(kubectl: Kubectl) -> None:
    """Runs and pools while the operator is there, then the release, then all that is left."""
    if kubectl.ask("get", "namespace", NAMESPACE).returncode != 0:
        return
    if _definitions(kubectl):
        kubectl.ask("delete", "workflows,workerpools", "--all", "--timeout=60s", seconds=90)
    for name in (NAME, CRDS_NAME):
        helm_uninstall(kubectl, name)
    kubectl.run("delete", "namespace", NAMESPACE, "--timeout=120s", seconds=150)


def _keep_logs(kubectl: Kubectl) -> None:
    """What one wants to see after a failure, in .cache/test/cluster."""
    LOGS.mkdir(parents=True, exist_ok=True)
    looks = {
        "objects.txt": ["get", "all,events,workerpools,workflows", "--output=wide"],
        "resources.yaml": ["get", "workerpools,workflows", "--output=yaml"],
        "operator.log": ["logs", f"deployment/{NAME}-operator", "--tail=-1"],
        "postgres.log": ["logs", f"deployment/{NAME}-postgres", "--tail=-1"],
        "workers.log": ["logs", "--selector=perdure.dev/pool", "--prefix", "--tail=-1"],
    }
    for name, arguments in looks.items():
        with suppress(Failure, subprocess.TimeoutExpired):
            done = kubectl.ask(*arguments)
            (LOGS / name).write_text(done.stdout + done.stderr)
