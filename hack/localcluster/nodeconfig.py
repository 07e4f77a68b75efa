"""The node of the local cluster: its configuration files and what each of its programs is started with.

Everything a program would write to a fixed place of the machine is pointed into the cluster's own folder here;
node.py hides the few places that no program lets one choose.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from localcluster import versions
from localcluster.console import Failure
from localcluster.controlplane import ControlPlane
from localcluster.settings import Settings

NODE_NAME = "perdure-local"
# Inside the node's own network namespace, so it cannot meet another one of the name.
BRIDGE = "cni0"
DNS_READY_PORT = 8181
# Debian's place for the standard network plugins, then everyone else's.
CNI_PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
# containerd's own limit, a little below the kernel's, for the longer of its two sockets.
SOCKET_PATH_BYTES = 104


@dataclass(frozen=True)
class Node:
    """Derived from the settings alone, so that the host side and the node's first process agree without talking."""

    settings: Settings

    @property
    def control_plane(self) -> ControlPlane:
        return ControlPlane(
            binaries=self.settings.binaries,
            folder=self.folder,
            address=str(self.settings.node_address),
            services=self.settings.services,
        )

    @property
    def folder(self) -> Path:
        return self.settings.state

    @property
    def socket(self) -> Path:
        return self.folder / "containerd.sock"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def prepare(self, *, nameservers: Sequence[str], snapshotter: str) -> None:
        """Write keys and configuration. `nameservers` answer for names outside the cluster; there may be none."""
        if len(f"{self.socket}.ttrpc") > SOCKET_PATH_BYTES:
            raise Failure(f"{self.socket} is too long for a socket: set PERDURE_CACHE to a shorter path")
        authority = self.control_plane.prepare()
        server = self.control_plane.server
        for client, user, groups in (
            ("scheduler", "system:kube-scheduler", ()),
            ("kubelet", f"system:node:{NODE_NAME}", ("system:nodes",)),
            ("proxy", "system:kube-proxy", ()),
        ):
            authority.sign(client, user=user, groups=groups)
            authority.kubeconfig(self.folder / f"{client}.kubeconfig", server, client)
        (self.folder / "cni").mkdir(exist_ok=True)
        self.logs.mkdir(exist_ok=True)
        (self.folder / "cni" / "10-perdure.conflist").write_text(json.dumps(self._cni()))
        (self.folder / "containerd.toml").write_text(self._containerd_toml(snapshotter))
        (self.folder / "kubelet.json").write_text(json.dumps(self._kubelet_configuration()))
        (self.folder / "resolv.conf").write_text("".join(f"nameserver {server}\n" for server in nameservers))
        (self.folder / "Corefile").write_text(self._corefile(nameservers))

    # -- command lines --------------------------------------------------------------------------------------------

    def containerd(self) -> list[str]:
        return ["containerd", f"--config={self.folder / 'containerd.toml'}"]

    def ctr(self, *arguments: str | Path) -> list[str]:
        return ["ctr", f"--address={self.socket}", "--namespace=k8s.io", *map(str, arguments)]

    def scheduler(self) -> list[str]:
        kubeconfig = self.folder / "scheduler.kubeconfig"
        return [
            str(self.settings.binaries / "kube-scheduler"),
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--leader-elect=false",
        ]

    def kubelet(self) -> list[str]:
        return [
            str(self.settings.binaries / "kubelet"),
            f"--config={self.folder / 'kubelet.json'}",
            f"--kubeconfig={self.folder / 'kubelet.kubeconfig'}",
            f"--root-dir={self.folder / 'kubelet'}",
            f"--cert-dir={self.folder / 'kubelet-pki'}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={self.settings.node_address}",
        ]

    def proxy(self) -> list[str]:
        return [
            str(self.settings.binaries / "kube-proxy"),
            f"--kubeconfig={self.folder / 'proxy.kubeconfig'}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={self.settings.subnet}",
            f"--hostname-override={NODE_NAME}",
            # Zero leaves the kernel's connection tracking as it is: its size belongs to the whole machine.
            "--conntrack-max-per-core=0",
            "--conntrack-min=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
        ]

    def dns(self) -> list[str]:
        return [str(self.settings.binaries / "coredns"), "-conf", str(self.folder / "Corefile")]

    # -- configuration files --------------------------------------------------------------------------------------

    def _cni(self) -> dict[str, object]:
        subnet = {"subnet": str(self.settings.subnet), "rangeStart": str(self.settings.first_pod_address)}
        bridge = {
            "type": "bridge",
            "bridge": BRIDGE,
            "isGateway": True,
            "ipMasq": True,
            "hairpinMode": True,  # a pod may call the service that leads back to itself
            "ipam": {
                "type": "host-local",
                "dataDir": str(self.folder / "ipam"),
                "ranges": [[{**subnet, "gateway": str(self.settings.node_address)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "1.0.0", "name": "perdure", "plugins": [bridge, ports]}

    def _containerd_toml(self, snapshotter: str) -> str:
        plugins = next((path for path in CNI_PLUGINS if (path / "bridge").exists()), None)
        if plugins is None:
            raise Failure("the standard CNI plugins are missing: `hack/cluster deps` installs them")
        # restrict_oom_score_adj: in a sandbox without CAP_SYS_RESOURCE runc cannot lower the score below our own and
        # ends with "can't get final child's PID from pipe: EOF".
        return f"""version = 2
root = "{self.folder}/containerd/root"
state = "{self.folder}/containerd/state"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{versions.PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{self.folder}/cni"
"""

    def _kubelet_configuration(self) -> dict[str, object]:
        certificate = {"clientCAFile": str(self.control_plane.keys / "ca.crt")}
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": certificate,
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.settings.cgroup}",
            "clusterDomain": "cluster.local",
            "clusterDNS": [str(self.settings.node_address)],
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "resolvConf": str(self.folder / "resolv.conf"),
            "podLogsDir": str(self.logs / "pods"),
            "volumePluginDir": str(self.folder / "volume-plugins"),
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            # How soon a changed Secret is seen in a pod: somebody waits for that here, and there is one node.
            "syncFrequency": "10s",
            # The machine's disk is somebody else's to fill: evict, and throw images away, only when all but full.
            # Images come from `load-image` and could not be pulled again.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "nodefs.inodesFree": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        }

    def _corefile(self, nameservers: Sequence[str]) -> str:
        forward = f"  forward . {' '.join(nameservers)}\n" if nameservers else ""
        return f""".:53 {{
  bind {self.settings.node_address}
  errors
  ready {self.settings.node_address}:{DNS_READY_PORT}
  kubernetes cluster.local {{
    kubeconfig {self.control_plane.kubeconfig}
  }}
{forward}}}
"""


def reachable_nameservers(resolv_conf: Path = Path("/etc/resolv.conf")) -> list[str]:
    """The machine's name servers; one on a loopback address cannot be reached from the node's namespace."""
    try:
        fields = [line.split() for line in resolv_conf.read_text().splitlines()]
    except OSError:
        return []
    servers = [words[1] for words in fields if len(words) > 1 and words[0] == "nameserver"]
    return [server for server in servers if not ip_address(server.split("%")[0]).is_loopback]
