"""The provider "local": a real cluster of one node on this Linux machine, without any container engine.

The node is a set of namespaces with node.py as its first process, much as kind's is a container. This module is the
host's side: it builds what is missing, starts the node, waits until the cluster is usable, and removes it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path

from localcluster import build, versions
from localcluster.console import Failure, Impossible, duration, exclusively, run, say, wait_until
from localcluster.host import Host
from localcluster.imagetar import write_image
from localcluster.node import BRIDGE_FILTER, GO
from localcluster.nodeconfig import DNS_READY_PORT, NODE_NAME, Node, reachable_nameservers
from localcluster.procfs import ProcessId, children, command_line
from localcluster.settings import Settings

# Commands that `up` calls, on top of what every Linux has.
NEEDED = ("containerd", "ctr", "runc", "ip", "iptables", "conntrack", "unshare", "mount", "openssl")
# The namespaces of the node; the user's stays the host's, because the node's programs need real root.
NAMESPACES = ("--pid", "--fork", "--kill-child=SIGKILL", "--mount", "--mount-proc", "--net", "--ipc", "--uts")
PROGRAMS = frozenset({program.name for program in (*build.CONTROL_PLANE, *build.NODE)} - {"pause"} | {"containerd"})
# Four seconds on an idle machine; the rest is for one with two busy cores.
START_SECONDS = 120.0
END_SECONDS = 30.0
# A program that ends this often while we wait will not come up by waiting longer.
RESTARTS = 3
LOG_LINES = 15


class LocalCluster:
    name = "local"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._node = Node(settings)
        self._host = Host(settings)
        self._record = settings.state / "node.json"

    def unavailable(self) -> str | None:
        """Why this machine cannot have one, or None."""
        if sys.platform != "linux":
            return "a local cluster needs Linux"
        if os.geteuid() != 0:
            return "a local cluster needs root, for namespaces, cgroups and a network device"
        trial = ["unshare", *NAMESPACES, "mount", "-t", "tmpfs", "none", "/mnt"]
        answer = subprocess.run(trial, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            return f"this sandbox allows no namespaces of its own ({answer.stderr.strip()})"
        return build.unavailable(self._settings, build.EVERYTHING)

    @property
    def kubeconfig(self) -> Path:
        return self._node.control_plane.kubeconfig

    # -- verbs ----------------------------------------------------------------------------------------------------

    def up(self) -> None:
        with self._exclusively():
            if self.is_up():
                say("the local cluster is up already")
                return
            self._check_programs()
            build.build(self._settings, build.EVERYTHING)
            if self._settings.state.exists():
                say("removing what is left of an earlier cluster")
            self._remove()
            started = time.monotonic()
            try:
                self._start()
                self._wait()
            except BaseException:
                # Keep the logs of a failure, but nothing that runs.
                self._kill_node()
                raise
            say(f"the local cluster is up after {duration(time.monotonic() - started)}")

    def down(self) -> None:
        with self._exclusively():
            existed = self._settings.state.exists()
            self._remove()
            say("the local cluster is gone" if existed else "there is no local cluster")

    def status(self) -> bool:
        """Print how it is; True when all is well."""
        if not self._settings.state.exists():
            print("local cluster: not running (`hack/cluster up` starts it)")
            return False
        problems = self.problems()
        print(f"local cluster: {'; '.join(problems) if problems else 'healthy'}")
        print(f"  Kubernetes {versions.KUBERNETES} at {self._node.control_plane.server}")
        for name, pid in sorted(self.programs().items()):
            print(f"  {name:<24} process {pid}")
        print(f"  logs in {self._node.logs}\n  export KUBECONFIG={self.kubeconfig}")
        return not problems

    def is_up(self) -> bool:
        return self._settings.state.exists() and not self.problems()

    def load_image(self, archives: Sequence[Path]) -> None:
        if self.node_pid() is None:
            raise Failure("the local cluster is not running: `hack/cluster up` starts it")
        for archive in archives:
            started = time.monotonic()
            run(self._node.ctr("images", "import", archive))
            say(f"loaded {archive.name} in {duration(time.monotonic() - started)}")

    def signal(self, container: str, signal: str) -> None:
        run(self._node.ctr("tasks", "kill", f"--signal=SIG{signal}", container))

    # -- what runs ------------------------------------------------------------------------------------------------

    def node_pid(self) -> int | None:
        """The node's first process, as the host numbers it."""
        if not self._record.exists():
            return None
        parent = ProcessId(**json.loads(self._record.read_text()))
        return next(iter(children(parent.pid)), None) if parent.is_alive() else None

    def programs(self) -> dict[str, int]:
        """The node's running programs and their process ids on the host; pods' processes are not among them."""
        pid = self.node_pid()
        found = {}
        for child in children(pid) if pid else ():
            name = Path(next(iter(command_line(child)), "")).name
            if name in PROGRAMS:
                found[name] = child
        return found

    def problems(self) -> list[str]:
        """What is wrong, for people; empty when the cluster can be used."""
        if self.node_pid() is None:
            return ["its node is not running"]
        missing = PROGRAMS - self.programs().keys()
        if missing:
            return [f"{', '.join(sorted(missing))} not running"]
        checks = (("API server", self._api_ready), ("node", self._node_ready), ("DNS", self._dns_ready))
        return [f"{name} not ready" for name, ready in checks if not ready()]

    # -- start ----------------------------------------------------------------------------------------------------

    def _check_programs(self) -> None:
        missing = [name for name in NEEDED if shutil.which(name) is None]
        if missing:
            raise Impossible(
                f"not installed: {', '.join(missing)}. `hack/cluster deps` installs them on Debian and Ubuntu"
            )

    def _start(self) -> None:
        self._host.check_addresses()
        self._settings.state.mkdir(parents=True, mode=0o700)
        self._host.take_folders()
        self._host.take_cgroups()
        self._node.prepare(
            nameservers=reachable_nameservers(),
            snapshotter="native" if self._settings.on_overlay() else "overlayfs",
        )
        write_image(self._node.folder / "pause.tar", self._settings.binaries / "pause", versions.PAUSE_IMAGE)
        if not BRIDGE_FILTER.exists():
            run(["modprobe", "br_netfilter"])  # it is a module here, and only we would have loaded it
        # The user's KUBECONFIG, proxies and Go settings are no business of the node's programs.
        kept = {name: value for name, value in os.environ.items() if name.startswith("PERDURE_")}
        kept |= {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME") if name in os.environ}
        with (self._settings.state / "node.log").open("wb") as log:
            parent = subprocess.Popen(
                ["unshare", *NAMESPACES, sys.executable, "-m", "localcluster.node"],
                env={**kept, "PYTHONPATH": str(Path(__file__).parent.parent), "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        identity = ProcessId.of(parent.pid)
        assert identity is not None and parent.stdin is not None
        self._record.write_text(json.dumps(asdict(identity)))
        with parent.stdin as stdin:
            wait_until("the node's first process", self.node_pid, seconds=END_SECONDS, interval=0.01)
            pid = self.node_pid()
            assert pid is not None
            self._host.connect(pid)
            stdin.write(f"{GO}\n".encode())

    def _wait(self) -> None:
        for what, ready in (
            ("the API server", self._api_ready),
            ("the node", self._node_ready),
            ("DNS", self._dns_ready),
            ("the service account that pods run as", self._service_account_ready),
        ):
            started = time.monotonic()
            try:
                wait_until(what, partial(self._check, ready), seconds=START_SECONDS)
            except Failure as failure:
                raise Failure(f"{failure}\nThe logs are in {self._node.logs}") from None
            say(f"{what} is ready ({duration(time.monotonic() - started)})")

    def _check(self, ready: Callable[[], bool]) -> bool:
        """Whether it is ready; raises Failure when waiting has become pointless."""
        log = (self._settings.state / "node.log").read_text()
        if self.node_pid() is None:
            raise Failure(f"the node's first process ended:\n{log}")
        for name in PROGRAMS:
            if log.count(f" {name} ended with") >= RESTARTS:
                last_words = (self._node.logs / f"{name}.log").read_text(errors="replace").splitlines()[-LOG_LINES:]
                raise Failure(f"{name} does not stay up:\n" + "\n".join(last_words))
        return ready()

    def _api_ready(self) -> bool:
        return self._asks("get", "--raw=/readyz") == "ok"

    def _node_ready(self) -> bool:
        query = '-ojsonpath={.status.conditions[?(@.type=="Ready")].status}'
        return self._asks("get", "node", NODE_NAME, query) == "True"

    def _service_account_ready(self) -> bool:
        return bool(self._asks("get", "serviceaccount", "default", "--namespace=default", "--output=name"))

    def _dns_ready(self) -> bool:
        url = f"http://{self._settings.node_address}:{DNS_READY_PORT}/ready"
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=2):
                return True
        except OSError:
            return False

    def _asks(self, *arguments: str) -> str:
        """kubectl's answer; empty when it has none."""
        kubectl = build.tool(self._settings, "kubectl")
        argv = [str(kubectl), f"--kubeconfig={self.kubeconfig}", "--request-timeout=5s", *arguments]
        env = {**os.environ, "NO_PROXY": "*"}  # a proxy knows nothing of a network inside this machine
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False).stdout.strip()

    # -- end ------------------------------------------------------------------------------------------------------

    def _kill_node(self) -> None:
        """End everything in the node at once: the kernel does so when the first process of its namespace ends."""
        if not self._record.exists():
            return
        parent = ProcessId(**json.loads(self._record.read_text()))
        if parent.is_alive():
            # unshare takes its child along (--kill-child), and waits for it when the child is ended first.
            os.kill(next(iter(children(parent.pid)), parent.pid), signal.SIGKILL)
            wait_until("the end of the node's processes", lambda: not parent.is_alive(), seconds=END_SECONDS)

    def _remove(self) -> None:
        if os.geteuid() != 0:
            raise Impossible("the local cluster was started by root and needs root to be removed")
        self._kill_node()
        self._host.give_back()

    def _exclusively(self) -> AbstractContextManager[None]:
        """One `up` or `down` at a time; the lock is kept outside the state, which `down` removes."""
        return exclusively(self._settings.cache / "cluster.lock", "another `hack/cluster` is at work: waiting for it")
