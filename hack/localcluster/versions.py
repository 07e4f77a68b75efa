"""What the local cluster is made of. The go.mod files beside this module pin it; here it gets its names.

A version is written once: in go.mod, where go.sum guards its content. To move to another one, run
`go get MODULE@VERSION && go mod tidy` in its folder; for kubernetes the `replace` lines move along (v1.X.Y goes
with v0.X.Y).
"""

import hashlib
import platform
import re
from pathlib import Path

GO_MODULES = Path(__file__).parent / "go"


def required(folder: str, module: str) -> str:
    """The version of `module` that go/`folder`/go.mod requires."""
    text = (GO_MODULES / folder / "go.mod").read_text()
    found = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise LookupError(f"go/{folder}/go.mod does not require {module}")
    return found[1]


KUBERNETES = required("kubernetes", "k8s.io/kubernetes")
ETCD = required("etcd", "go.etcd.io/etcd/server/v3")
HELM = required("helm", "helm.sh/helm/v3")
COREDNS = required("coredns", "github.com/coredns/coredns")
# Its default node image carries the minor version of Kubernetes above, so both kinds of cluster find the same faults.
KIND = required("kind", "sigs.k8s.io/kind")

# The newest Go that a go.mod above asks for: an older one is enough only if it may fetch this one by itself.
GO = (1, 26)

# kubectl supports servers one minor version older or newer, and works well with a few more: `wait --for=jsonpath`
# with all we ask of it is there since this one.
KUBECTL_MINOR = 30

# The image that holds a pod's namespaces; built here, so its name must be one that nobody would pull.
PAUSE_IMAGE = "localhost/perdure-pause:1"


def stamps() -> dict[str, str]:
    """Values that each program's own build sets by the linker. Unset, a server calls itself v0.0.0, and Helm, which
    has no cluster to ask while it renders, takes it for Kubernetes 1.20 and refuses charts that ask for a newer one.
    """
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    helm = "helm.sh/helm/v3"
    values = {f"{helm}/internal/version.version": HELM, f"{helm}/internal/version.metadata": ""}
    for package in (f"{helm}/pkg/lint/rules", f"{helm}/pkg/chartutil"):
        values |= {f"{package}.k8sVersionMajor": major, f"{package}.k8sVersionMinor": minor}
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        values |= {f"{package}.gitVersion": KUBERNETES, f"{package}.gitMajor": major, f"{package}.gitMinor": minor}
    return values


def fingerprint() -> str:
    """Names the folder of built programs: other sources or another processor give another folder."""
    digest = hashlib.sha256(f"{platform.machine()} {stamps()}".encode())
    for path in sorted(GO_MODULES.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(GO_MODULES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
