"""Where things live and which addresses the local cluster takes; every one may be set from the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from localcluster import versions
from localcluster.console import Failure, run

# Not 10.88 (podman), 10.96 and 10.244 (kubeadm, kind) or 10.42 (k3s): those may be on the machine already.
SUBNET = IPv4Network("10.203.0.0/16")
SERVICES = IPv4Network("10.204.0.0/16")


@dataclass(frozen=True)
class Settings:
    """PERDURE_CACHE holds everything that is built or running; the rest matters only where addresses clash."""

    cache: Path
    link: str = "perdure0"
    subnet: IPv4Network = SUBNET
    services: IPv4Network = SERVICES

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> "Settings":
        base = env.get("PERDURE_CACHE") or env.get("XDG_CACHE_HOME") or "~/.cache"
        try:
            return cls(
                cache=Path(base).expanduser().absolute() / "perdure",
                link=env.get("PERDURE_CLUSTER_LINK", cls.link),
                subnet=IPv4Network(env.get("PERDURE_CLUSTER_SUBNET", str(SUBNET))),
                services=IPv4Network(env.get("PERDURE_CLUSTER_SERVICES", str(SERVICES))),
            )
        except ValueError as error:
            raise Failure(f"PERDURE_CLUSTER_SUBNET and PERDURE_CLUSTER_SERVICES are networks: {error}") from None

    @property
    def binaries(self) -> Path:
        return self.cache / f"bin-{versions.fingerprint()}"

    @property
    def state(self) -> Path:
        """What the running cluster keeps: gone after `down`."""
        return self.cache / "cluster"

    @property
    def images(self) -> Path:
        return self.cache / "images"

    def on_overlay(self) -> bool:
        """Whether the cache is on an overlay, as in a container: a second one cannot be laid on top."""
        self.cache.mkdir(parents=True, exist_ok=True)
        return run(["stat", "--file-system", "--format=%T", self.cache]).strip() == "overlayfs"

    @property
    def cgroup(self) -> str:
        """A cgroup of its own in every hierarchy: what is in it is ours, whoever its parent process is by then."""
        return self.link

    @property
    def node_address(self) -> IPv4Address:
        """The node, its API server and its DNS, for pods and for the host."""
        return self.subnet[1]

    @property
    def host_address(self) -> IPv4Address:
        """The host, as pods see it: what listens here can be reached from a pod."""
        return self.subnet[2]

    @property
    def first_pod_address(self) -> IPv4Address:
        return self.subnet[256]
