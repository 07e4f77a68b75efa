"""What the local cluster takes from the host, and gives back: a cable, a firewall rule, cgroups, a few folders.

`take` notes in the state folder what was different before; `give_back` works from those notes and from the names that
only this cluster uses, so it may be called at any time, on whatever a crash has left.
"""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path

from localcluster.console import Failure, run, wait_until
from localcluster.node import HIDDEN, UPLINK
from localcluster.settings import Settings

CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = {"cpu", "cpuset", "hugetlb", "memory", "pids"}
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
# The kernel frees a cgroup a moment after the last process in it has ended.
CGROUP_SECONDS = 20.0


class Host:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._notes = settings.state / "host.json"

    def check_addresses(self) -> None:
        """Fail when the machine already reaches something else at our addresses."""
        for route in json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"])):
            if route["dst"] == "default" or route.get("type") in ("broadcast", "local", "multicast"):
                continue
            taken = IPv4Network(route["dst"], strict=False)
            for name, ours in (("SUBNET", self._settings.subnet), ("SERVICES", self._settings.services)):
                if taken.overlaps(ours):
                    raise Failure(
                        f"this machine has a route to {taken} (device {route.get('dev')}), which overlaps {ours}: "
                        f"set PERDURE_CLUSTER_{name} to a free network"
                    )
        if Path("/sys/class/net", self._settings.link).exists():
            raise Failure(
                f"there is a network device {self._settings.link} that no cluster of ours is known to have made: "
                f"remove it (`ip link delete {self._settings.link}`) or set PERDURE_CLUSTER_LINK"
            )

    def take_folders(self) -> None:
        """Make the mount points of the node's hidden folders, and note which were missing."""
        missing = [path for path in HIDDEN if not path.exists()]
        self._notes.write_text(json.dumps({"folders": [str(path) for path in missing]}))
        for path in missing:
            path.mkdir(parents=True)

    def take_cgroups(self) -> None:
        """One cgroup for all pods in each hierarchy; there is one hierarchy in version 2, and many in version 1."""
        if _is_version_2():
            _delegate_controllers()
        for hierarchy in _hierarchies():
            if (hierarchy / "cgroup.clone_children").exists():
                # A new cpuset cgroup is unusable until it names processors and memory; this copies the parent's.
                (hierarchy / "cgroup.clone_children").write_text("1")
            (hierarchy / self._settings.cgroup).mkdir(exist_ok=True)

    def connect(self, node_pid: int) -> None:
        """Lay the cable between host and node, and let pods out through the host."""
        settings = self._settings
        for command in (
            f"link add {settings.link} type veth peer name {UPLINK} netns {node_pid}",
            f"address add {settings.host_address}/{settings.subnet.prefixlen} dev {settings.link}",
            f"link set {settings.link} up",
            f"route add {settings.services} via {settings.node_address}",
        ):
            run(["ip", *command.split()])
        notes = json.loads(self._notes.read_text())
        self._notes.write_text(json.dumps({**notes, "forwarding": FORWARDING.read_text().strip()}))
        FORWARDING.write_text("1")
        run(self._masquerade("--append"))

    def give_back(self) -> None:
        notes = json.loads(self._notes.read_text()) if self._notes.exists() else {}
        with suppress(Failure):
            run(["ip", "link", "delete", self._settings.link])  # usually gone with the node's end of it
        with suppress(Failure):
            run(self._masquerade("--delete"))
        if "forwarding" in notes:
            FORWARDING.write_text(notes["forwarding"])
        for hierarchy in _hierarchies():
            _remove_cgroup(hierarchy / self._settings.cgroup)
        self._unmount_leftovers()
        for folder in notes.get("folders", ()):
            with suppress(OSError):  # somebody else uses it by now
                Path(folder).rmdir()
        if self._settings.state.exists():
            shutil.rmtree(self._settings.state)

    def _masquerade(self, action: str) -> list[str]:
        subnet = str(self._settings.subnet)
        comment = ["-m", "comment", "--comment", f"perdure local cluster {self._settings.link}"]
        match = ["--source", subnet, "!", "--destination", subnet, *comment]
        return ["iptables", "--wait", "--table", "nat", action, "POSTROUTING", *match, "--jump", "MASQUERADE"]

    def _unmount_leftovers(self) -> None:
        """Mounts live in the node's namespace; removing files through one that does not would be a disaster."""
        state = f"{self._settings.state}/"
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for point in sorted((point for point in points if point.startswith(state)), reverse=True):
            run(["umount", "--lazy", point])


def _is_version_2() -> bool:
    return (CGROUPS / "cgroup.controllers").exists()


def _hierarchies() -> Iterator[Path]:
    if _is_version_2():
        yield CGROUPS
    else:
        yield from (path for path in sorted(CGROUPS.iterdir()) if (path / "cgroup.procs").exists())


def _delegate_controllers() -> None:
    """In version 2 a cgroup has only the controllers that its parent hands down, and the kubelet wants all of these."""
    for controller in CONTROLLERS & set((CGROUPS / "cgroup.controllers").read_text().split()):
        try:
            (CGROUPS / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError as error:
            raise Failure(
                f"the cgroup controller {controller} cannot be handed to the cluster ({error.strerror}): in a "
                "container all processes must first be in cgroups below its topmost one. Use KUBECONFIG or kind here"
            ) from None


def _remove_cgroup(cgroup: Path) -> None:
    """Remove it with all below. A process still in it is a container's that outlived its node: it is ended."""

    def removed() -> bool:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            with suppress(OSError):
                for pid in Path(folder, "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
            with suppress(OSError):
                Path(folder).rmdir()
        return not cgroup.exists()

    wait_until(f"the end of all processes in {cgroup}", removed, seconds=CGROUP_SECONDS)
