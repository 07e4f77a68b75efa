"""etcd, API server and controller manager: what each is started with.

The node of the local cluster and the control plane that the tests start by themselves differ only in addresses and
ports, so both take their command lines from here and a test meets the same server as a user.
"""

from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from localcluster.pki import Authority

ADMIN = "admin"
CONTROLLER_MANAGER = "controller-manager"


@dataclass(frozen=True)
class ControlPlane:
    """`folder` holds keys, data and kubeconfigs of this control plane alone."""

    binaries: Path
    folder: Path
    address: str
    services: IPv4Network
    api_port: int = 6443
    etcd_port: int = 2379
    etcd_peer_port: int = 2380
    controller_manager_port: int = 10257

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.api_port}"

    @property
    def keys(self) -> Path:
        return self.folder / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    def prepare(self) -> Authority:
        """Make all keys, certificates and kubeconfigs; further clients may be signed with the answer."""
        authority = Authority(self.keys)
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        addresses = ["127.0.0.1", self.address, str(self.services[1])]
        authority.sign(
            "apiserver",
            user="kube-apiserver",
            names=[f"DNS:{name}" for name in names] + [f"IP:{address}" for address in dict.fromkeys(addresses)],
        )
        authority.sign(ADMIN, user="admin", groups=["system:masters"])
        authority.sign(CONTROLLER_MANAGER, user="system:kube-controller-manager")
        authority.service_account_keys()
        authority.kubeconfig(self.kubeconfig, self.server, ADMIN)
        authority.kubeconfig(self.folder / "controller-manager.kubeconfig", self.server, CONTROLLER_MANAGER)
        return authority

    def etcd(self) -> list[str]:
        client = f"http://127.0.0.1:{self.etcd_port}"
        peer = f"http://127.0.0.1:{self.etcd_peer_port}"
        return [
            str(self.binaries / "etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # what a power cut would lose here, nobody misses
        ]

    def api_server(self) -> list[str]:
        return [
            str(self.binaries / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={self.api_port}",
            f"--tls-cert-file={self.keys / 'apiserver.crt'}",
            f"--tls-private-key-file={self.keys / 'apiserver.key'}",
            f"--client-ca-file={self.keys / 'ca.crt'}",
            f"--service-cluster-ip-range={self.services}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.keys / 'sa.pub'}",
            f"--service-account-signing-key-file={self.keys / 'sa.key'}",
            f"--kubelet-client-certificate={self.keys / 'admin.crt'}",
            f"--kubelet-client-key={self.keys / 'admin.key'}",
            "--kubelet-preferred-address-types=InternalIP",  # no DNS knows the node's name
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            # There is one server: its endpoint must not wait for a lease of an earlier one to run out.
            "--endpoint-reconciler-type=master-count",
        ]

    def controller_manager(self) -> list[str]:
        kubeconfig = self.folder / "controller-manager.kubeconfig"
        return [
            str(self.binaries / "kube-controller-manager"),
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--service-account-private-key-file={self.keys / 'sa.key'}",
            f"--root-ca-file={self.keys / 'ca.crt'}",
            f"--secure-port={self.controller_manager_port}",
            f"--bind-address={self.address}",
            "--use-service-account-credentials=true",
            # The API server answers a moment before its caches know this client's role: not a reason to end.
            "--authentication-tolerate-lookup-failure=true",
            "--leader-elect=false",
        ]
