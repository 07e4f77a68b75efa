"""Act one: a cluster, the two images in it, and Perdure with a throwaway Postgres, installed by Helm."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster.console import Failure, run, run_with_progress, say
from testrun import ROOT
from testrun.machine import hack, output

from demolib.kubectl import Kubectl

NAMESPACE = "perdure-demo"
RELEASE = "perdure"
DEFINITIONS = "perdure-crds"
CHARTS = ROOT / "charts"
TAG = "dev"
HELM_SECONDS = 300
"""Pulling images in a cluster that is not ours may take minutes; here it takes seconds."""


@dataclass(frozen=True)
class Image:
    """A reference in two parts, as the chart takes them, and something that changes with the content."""

    repository: str
    tag: str
    content: str

    def __str__(self) -> str:
        return f"{self.repository}:{self.tag}"


@dataclass(frozen=True)
class Installation:
    """What the later acts need."""

    kubectl: Kubectl
    worker: Image


def provider() -> str:
    """Where the cluster comes from on this machine. Raises `Impossible` with why it cannot have one."""
    return output("cluster", "provider")


def install(where: str) -> Installation:
    """Everything up to a ready operator. Doing it again brings an older installation up to date."""
    if where == "local":
        hack("cluster", "deps")
    hack("cluster", "up")
    kubeconfig = output("cluster", "kubeconfig")
    kubectl = Kubectl(output("cluster", "tool", "kubectl"), kubeconfig, NAMESPACE)
    operator, worker = _images(where)
    helm = Helm(output("cluster", "tool", "helm"), kubectl)
    helm.install_definitions()
    helm.install(RELEASE, CHARTS / "perdure", _values(operator))
    return Installation(kubectl, worker)


def _images(where: str) -> tuple[Image, Image]:
    """Built and loaded; in a cluster that is not ours they come from the registry that the user has pushed them to."""
    prefix = os.environ.get("PERDURE_IMAGES", "")
    if prefix:
        tag = os.environ.get("PERDURE_IMAGES_TAG", TAG)
        return Image(f"{prefix}/perdure-operator", tag, tag), Image(f"{prefix}/perdure-worker", tag, tag)
    if where == "existing":
        raise Failure(
            "KUBECONFIG names a cluster that is not ours, so it must pull the images from a registry: build them with "
            "hack/images, push perdure-operator and perdure-worker, and set PERDURE_IMAGES to REGISTRY/PATH (and "
            f"PERDURE_IMAGES_TAG, if it is not {TAG}). Or unset KUBECONFIG to use a cluster on this machine"
        )
    answer = hack("images", f"--tag={TAG}", "--load", "operator", "worker")
    operator, worker = (Path(line) for line in answer.splitlines())
    return Image("perdure-operator", TAG, _digest(operator)), Image("perdure-worker", TAG, _digest(worker))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def _values(operator: Image) -> list[str]:
    return [
        "--set=database.throwaway.enabled=true",
        f"--set=image.repository={operator.repository}",
        f"--set=image.tag={operator.tag}",
        # The tag stays the same over builds: this is what rolls the pods when the content does not.
        f"--set-string=podAnnotations.perdure\\.dev/image={operator.content}",
    ]


@dataclass(frozen=True)
class Helm:
    """helm, on the cluster and in the namespace of the demo."""

    program: str
    kubectl: Kubectl

    def install_definitions(self) -> None:
        """The custom resource definitions. There is one set in a cluster: those of another release stay its own."""
        chart = CHARTS / "perdure-crds"
        owner = r"{.metadata.annotations.meta\.helm\.sh/release-namespace}"
        every = "{range .items[*]}{.metadata.name} " + owner + '{"\\n"}{end}'
        owners = self.kubectl.run("get", "crd", f"--output=jsonpath={every}")
        others = [line.split() for line in owners.splitlines() if ".perdure.dev" in line]
        if any(owner[1:] != [NAMESPACE] for owner in others):
            say("the custom resource definitions belong to another release: bringing them up to date")
            rendered = run([self.program, "template", DEFINITIONS, chart], env=self.kubectl.env)
            self.kubectl.run("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=rendered)
        else:
            self.install(DEFINITIONS, chart, [])

    def install(self, name: str, chart: Path, values: Sequence[str]) -> None:
        """Install or bring up to date, and wait until all of it is ready."""
        command = ["upgrade", "--install", name, str(chart), f"--namespace={NAMESPACE}", "--create-namespace", *values]
        say(f"helm upgrade --install {name} {chart.relative_to(ROOT)} --namespace {NAMESPACE}")
        argv = [self.program, *command, "--wait", f"--timeout={HELM_SECONDS}s"]
        try:
            run_with_progress(argv, f"helm {name}", progress=lambda _: "", cwd=ROOT, env=self.kubectl.env)
        except Failure as failure:
            raise Failure(f"{failure}\n{self._why()}") from None

    def _why(self) -> str:
        """Helm only says that it has waited too long: what the pods say about it."""
        pods = self.kubectl.ask("get", "pods").stdout
        logs = self.kubectl.ask(
            "logs", "--selector=app.kubernetes.io/instance=" + RELEASE, "--tail=5", "--prefix"
        ).stdout
        advice = "an installation made by an older state of this repository goes away with `make demo-down`"
        return f"{pods}\n{logs}\n{advice}"


def remove(where: str) -> None:
    """`make demo-down`: the whole cluster where it is ours, else what the demo has put into it."""
    if where != "existing":
        hack("cluster", "down")
        return
    kubectl = Kubectl(output("cluster", "tool", "kubectl"), output("cluster", "kubeconfig"), NAMESPACE)
    helm = output("cluster", "tool", "helm")
    say(f"removing the runs, the pools and the release in {NAMESPACE}")
    kubectl.ask("delete", "workflows,workerpools,workflowsignals", "--all", "--timeout=60s", seconds=90)
    subprocess.run([helm, "uninstall", RELEASE, f"--namespace={NAMESPACE}", "--wait"], env=kubectl.env, check=False)
    kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found", seconds=180)
    say("the custom resource definitions stay (helm uninstall keeps them); to remove them and all Workflows for good:")
    say("  kubectl delete crd workflows.perdure.dev workerpools.perdure.dev workflowsignals.perdure.dev")
