"""The pod security standard `restricted`, as a function: what in a pod's spec breaks it.

For pods that are rendered or planned, long before an API server sees them. Linux pods only.
"""

from collections.abc import Iterator, Mapping
from typing import Any

ALLOWED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
SECCOMP = {"RuntimeDefault", "Localhost"}
SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")

Spec = Mapping[str, Any]


def violations(pod: Spec) -> list[str]:
    """One line for each rule that the spec of a pod breaks; empty when `restricted` admits it."""
    return [*_of_pod(pod), *(found for each in containers(pod) for found in _of_container(pod, each))]


def containers(pod: Spec) -> Iterator[Spec]:
    """Every container of the pod, init containers included."""
    for kind in CONTAINER_LISTS:
        yield from pod.get(kind) or []


def _of_pod(pod: Spec) -> Iterator[str]:
    context = pod.get("securityContext") or {}
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(name):
            yield f"{name} is set"
    for volume in pod.get("volumes") or []:
        for kind in sorted(volume.keys() - {"name"} - ALLOWED_VOLUMES):
            yield f"volume {volume['name']}: {kind} is not allowed"
    for sysctl in context.get("sysctls") or []:
        if sysctl["name"] not in SAFE_SYSCTLS:
            yield f"sysctl {sysctl['name']} is not allowed"
    yield from _of_context("pod", context)


def _of_container(pod: Spec, container: Spec) -> Iterator[str]:
    name = f"container {container['name']}"
    context = container.get("securityContext") or {}
    of_pod = pod.get("securityContext") or {}
    yield from _of_context(name, context)
    if context.get("privileged"):
        yield f"{name}: privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation is not false"
    if context.get("procMount", "Default") != "Default":
        yield f"{name}: procMount is not Default"
    if context.get("runAsNonRoot", of_pod.get("runAsNonRoot")) is not True:
        yield f"{name}: runAsNonRoot is not true"
    if (context.get("seccompProfile") or of_pod.get("seccompProfile") or {}).get("type") not in SECCOMP:
        yield f"{name}: no seccomp profile"
    capabilities = context.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or []):
        yield f"{name}: capabilities are not dropped"
    for added in sorted(set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}):
        yield f"{name}: adds the capability {added}"
    for port in container.get("ports") or []:
        if port.get("hostPort"):
            yield f"{name}: hostPort {port['hostPort']}"


def _of_context(name: str, context: Spec) -> Iterator[str]:
    """Rules that hold for the security context of a pod and for that of a container."""
    if context.get("runAsUser") == 0:
        yield f"{name}: runAsUser is 0"
    if context.get("runAsNonRoot") is False:
        yield f"{name}: runAsNonRoot is false"
    if (context.get("seccompProfile") or {}).get("type", "RuntimeDefault") not in SECCOMP:
        yield f"{name}: seccomp profile {context['seccompProfile']['type']}"
    if (context.get("appArmorProfile") or {}).get("type", "RuntimeDefault") not in SECCOMP:
        yield f"{name}: AppArmor profile {context['appArmorProfile']['type']}"
    selinux = context.get("seLinuxOptions") or {}
    if selinux.get("type", "") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield f"{name}: SELinux options"
