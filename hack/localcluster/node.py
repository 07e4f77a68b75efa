"""The first process inside the local cluster's node: sets the node up, starts its programs, keeps them running.

`hack/cluster up` starts it with process, mount, network, IPC and host name namespaces of its own. That is what makes
`down` simple and safe: the kernel ends every process of a namespace with its first one, and mounts, interfaces and
firewall rules go with the last. Only files and cgroups are left for the host side to remove.
"""

import os
import socket
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from localcluster.console import Failure, run, say
from localcluster.nodeconfig import BRIDGE, NODE_NAME, Node
from localcluster.settings import Settings

# The host's end of the cable is named by the settings, ours like this.
UPLINK = "uplink"
# The word on stdin that says the cable is there; end of file instead means that `up` gave up.
GO = "go"
# Places that programs write to without asking. They get an empty file system of their own, seen by the node alone.
HIDDEN = (Path("/run"), Path("/var/lib/cni"), Path("/var/lib/kubelet"), Path("/var/log/containers"))
BRIDGE_FILTER = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
RESTART_SECONDS = 1.0
TICK_SECONDS = 0.05


def main() -> None:
    node = Node(Settings.from_environment())
    _mounts()
    if sys.stdin.readline().strip() != GO:
        sys.exit("up was given up before the node had a network")
    _network(node)
    socket.sethostname(NODE_NAME)
    os.chdir(node.folder)
    Supervisor(node).run()


def _mounts() -> None:
    # Volumes with mount propagation need shared mounts; this shares within the namespace, not with the host.
    run(["mount", "--make-rshared", "/"])
    for path in HIDDEN:
        run(["mount", "-t", "tmpfs", "-o", "mode=755", "perdure", path])


def _network(node: Node) -> None:
    settings = node.settings
    width = settings.subnet.prefixlen
    for command in (
        "link set lo up",
        f"link add {BRIDGE} type bridge",
        f"address add {settings.node_address}/{width} dev {BRIDGE}",
        f"link set {UPLINK} master {BRIDGE} up",
        f"link set {BRIDGE} up",
        f"route add default via {settings.host_address}",
    ):
        run(["ip", *command.split()])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # Without it an answer from a pod to a pod beside it would not pass the rules that turned the service's address
    # into the pod's, and would be thrown away.
    BRIDGE_FILTER.write_text("1")


@dataclass
class Program:
    """Started once `ready_to_start` says so, and again whenever it ends."""

    name: str
    argv: list[str]
    ready_to_start: Callable[[], bool]
    pid: int | None = None
    not_before: float = field(default=0.0)


class Supervisor:
    """Starts what is due, reaps what ended: its own programs and, as first process, everybody's orphans."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tls: ssl.SSLContext | None = None
        self._image_loaded = False
        plane = node.control_plane
        self._programs = [
            Program("etcd", plane.etcd(), lambda: True),
            Program("kube-apiserver", plane.api_server(), lambda: True),
            Program("containerd", node.containerd(), lambda: True),
            Program("kubelet", node.kubelet(), lambda: self._api_ready() and self._containers_ready()),
            Program("kube-controller-manager", plane.controller_manager(), self._api_ready),
            Program("kube-scheduler", node.scheduler(), self._api_ready),
            Program("kube-proxy", node.proxy(), self._api_ready),
            Program("coredns", node.dns(), self._api_ready),
        ]

    def run(self) -> None:
        while True:
            self._reap()
            for program in self._programs:
                if program.pid is None and time.monotonic() >= program.not_before and program.ready_to_start():
                    self._start(program)
            time.sleep(TICK_SECONDS)

    def _start(self, program: Program) -> None:
        # Not subprocess: it wants to wait for its children itself, and here _reap collects all there are.
        log = self._node.logs / f"{program.name}.log"
        files = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        program.pid = os.posix_spawnp(program.argv[0], program.argv, os.environ, file_actions=files)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for program in self._programs:
                if program.pid == pid:
                    say(f"{program.name} ended with {os.waitstatus_to_exitcode(status)}: starting it again")
                    program.pid = None
                    program.not_before = time.monotonic() + RESTART_SECONDS

    def _api_ready(self) -> bool:
        plane = self._node.control_plane
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=str(plane.keys / "ca.crt"))
        try:
            with urllib.request.urlopen(f"{plane.server}/readyz", timeout=1, context=self._tls):
                return True
        except OSError:
            return False

    def _containers_ready(self) -> bool:
        """containerd answers and has the image without which no pod can start."""
        if not self._image_loaded:
            try:
                run(self._node.ctr("images", "import", self._node.folder / "pause.tar"))
            except Failure:
                return False
            self._image_loaded = True
        return True


if __name__ == "__main__":
    main()
