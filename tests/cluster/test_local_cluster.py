"""The cluster itself: what the other tests of this tier take for granted."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from demolib.kubectl import Kubectl
from localcluster import build, versions
from localcluster.console import wait_until
from localcluster.local import LocalCluster
from localcluster.procfs import children
from localcluster.settings import Settings

from tests.support.cluster import Cluster
from tests.support.tiers import unavailable

ROOT = Path(__file__).resolve().parents[2]
POD_SECONDS = 60
SERVE = "import http.server as h; h.test(HandlerClass=h.SimpleHTTPRequestHandler, port=8000)"


def pod(name: str, image: str, program: str) -> dict[str, Any]:
    """Runs a Python program, with the rights that a restricted namespace leaves."""
    container = {
        "name": "main",
        "image": image,
        "command": ["python", "-c", program],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def ready(kubectl: Kubectl, name: str) -> None:
    kubectl.run("wait", "--for=condition=Ready", f"pod/{name}", f"--timeout={POD_SECONDS}s", seconds=POD_SECONDS + 5)


def restarts(kubectl: Kubectl, name: str) -> int:
    return int(kubectl.get("pod", name)["status"]["containerStatuses"][0]["restartCount"])


def test_a_pod_runs_as_nobody_and_its_output_can_be_read(namespace: Kubectl, python_image: str) -> None:
    program = "import os, time; print('user', os.getuid(), flush=True); time.sleep(600)"
    namespace.apply([pod("speaker", python_image, program)])
    ready(namespace, "speaker")
    assert namespace.run("logs", "speaker") == "user 65532\n"
    assert namespace.run("exec", "speaker", "--", "python", "-c", "print(6 * 7)") == "42\n"


def test_pods_find_each_other_and_themselves_by_name(namespace: Kubectl, python_image: str) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        # Not the pod's own name, which in the pod is its own address.
        "metadata": {"name": "shop"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    sleeper = pod("client", python_image, "import time; time.sleep(600)")
    namespace.apply([service, pod("server", python_image, SERVE), sleeper])
    ready(namespace, "server")
    ready(namespace, "client")
    ask = "import urllib.request as r; print(r.urlopen('http://shop', timeout=10).status)"

    def answered(name: str) -> bool:
        return namespace.ask("exec", name, "--", "python", "-c", ask).stdout == "200\n"

    for name in ("client", "server"):
        wait_until(f"an answer of the service to {name}", partial(answered, name), seconds=30)


def test_a_killed_main_process_is_seen_and_started_again(
    cluster: Cluster, namespace: Kubectl, python_image: str
) -> None:
    namespace.apply([pod("victim", python_image, "import time; time.sleep(600)")])
    ready(namespace, "victim")
    cluster.signal(namespace, "victim", "KILL")
    wait_until("a restart", lambda: restarts(namespace, "victim") == 1, seconds=POD_SECONDS)
    status = namespace.get("pod", "victim")["status"]["containerStatuses"][0]
    assert status["lastState"]["terminated"]["exitCode"] == 128 + signal.SIGKILL


def test_a_frozen_main_process_stands_still_and_goes_on(
    cluster: Cluster, namespace: Kubectl, python_image: str
) -> None:
    ticks = "import time\nfor n in range(10**6): print(n, flush=True); time.sleep(0.05)"
    namespace.apply([pod("clock", python_image, ticks)])
    ready(namespace, "clock")
    with cluster.frozen(namespace, "clock"):
        # Two looks may fall on both sides of the last line that was still on its way.
        wait_until("silence", lambda: namespace.run("logs", "clock") == namespace.run("logs", "clock"), seconds=10)
        before = namespace.run("logs", "clock")
    wait_until("the next tick", lambda: namespace.run("logs", "clock") != before, seconds=10)
    assert restarts(namespace, "clock") == 0


def test_diagnostics_show_why_a_pod_does_not_start(cluster: Cluster, namespace: Kubectl) -> None:
    namespace.apply([pod("lost", "localhost/no-such-image:1", "")])
    wait_until("its event", lambda: "ErrImage" in cluster.diagnostics(namespace.namespace), seconds=POD_SECONDS)


class Second:
    """Another local cluster beside the first: its own cache, addresses and device, the same programs."""

    def __init__(self, cache: Path) -> None:
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
            "PERDURE_CACHE": str(cache),
            "PERDURE_CLUSTER_PROVIDER": "local",
            "PERDURE_CLUSTER_LINK": "perdure-test",
            "PERDURE_CLUSTER_SUBNET": "10.221.0.0/16",
            "PERDURE_CLUSTER_SERVICES": "10.222.0.0/16",
        }
        self.settings = Settings.from_environment(self.env)
        self.local = LocalCluster(self.settings)
        self.settings.cache.mkdir(parents=True)
        self.settings.binaries.symlink_to(Settings.from_environment().binaries)

    def hack(self, *arguments: str) -> str:
        command = [str(ROOT / "hack" / "cluster"), *arguments]
        return subprocess.run(command, env=self.env, stdout=subprocess.PIPE, text=True, check=True).stdout

    def processes(self) -> set[int]:
        """All of its node, pods' too: by their parents, since most have left their groups and sessions."""
        first = self.local.node_pid()
        found, todo = set(), [first] if first else []
        while todo:
            pid = todo.pop()
            found.add(pid)
            todo += children(pid)
        return found

    def traces(self) -> list[str]:
        """What it has on this machine outside its cache."""
        link = self.settings.link
        rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout.splitlines()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return [
            *(str(path) for path in (Path("/sys/class/net", link), self.settings.state) if path.exists()),
            *map(str, Path("/sys/fs/cgroup").glob(f"**/{link}")),
            *(rule for rule in rules if link in rule),
            *(mount for mount in mounts if str(self.settings.cache) in mount),
        ]


@pytest.fixture
def second(cluster: Cluster) -> Iterator[Second]:
    """Not up yet. Where the first one is not local, this machine may have no way to have one."""
    if cluster.provider.name != "local":
        unavailable("cluster", f"the cluster is not a local one but {cluster.provider.name}")
    # Not tmp_path: there are sockets in it, whose paths must be short.
    with tempfile.TemporaryDirectory(prefix="perdure-") as cache:
        found = Second(Path(cache))
        try:
            yield found
        finally:
            found.hack("down")


@pytest.mark.slow_cluster
def test_up_after_a_crash_needs_no_person_and_down_leaves_nothing(second: Second) -> None:
    second.hack("up")
    kubectl = Kubectl(build.tool(second.settings, "kubectl"), second.local.kubeconfig, "default")
    kubectl.run("run", "idle", f"--image={versions.PAUSE_IMAGE}", "--image-pull-policy=Never")
    ready(kubectl, "idle")
    everything = second.processes()
    # The first process last: with it, the kernel would end all the others.
    for pid in sorted(everything, reverse=True):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert second.hack("up") == f"export KUBECONFIG={second.local.kubeconfig}\n"
    assert second.local.problems() == []
    assert not everything & second.processes()
    second.hack("down")
    assert second.traces() == []
    second.hack("down")


@pytest.mark.slow_cluster
def test_a_program_that_ends_is_started_again(second: Second) -> None:
    second.hack("up")
    before = second.local.programs()
    killed = before["kube-scheduler"]
    os.kill(killed, signal.SIGKILL)
    wait_until(
        "another scheduler",
        lambda: second.local.programs().get("kube-scheduler", killed) != killed,
        seconds=10,
    )
    # A cluster that is up is left alone.
    second.hack("up")
    assert second.local.programs()["etcd"] == before["etcd"]
