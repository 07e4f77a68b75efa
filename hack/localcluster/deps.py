"""Installs what the local cluster, the images and some tests need from Debian's or Ubuntu's own packages."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from localcluster.console import Failure, Impossible, run, run_with_progress, say
from localcluster.nodeconfig import CNI_PLUGINS

# Each package, and the command that tells that it, or its like from elsewhere, is there.
COMMANDS = {
    "containerd": "ctr",
    "runc": "runc",
    "iproute2": "ip",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "util-linux": "unshare",
    "openssl": "openssl",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "prometheus": "promtool",  # the tests of the alerts
}

# What only the tests of one process need: a pooler, and an older Postgres than the embedded one.
POOLER = {"pgbouncer": "/usr/sbin/pgbouncer"}
OLDER_POSTGRES = {"postgresql-15": "/usr/lib/postgresql/15/bin/postgres"}

# Of these packages, the services that Debian would start and run on every boot from then on.
SERVICES = {
    "containerd": "containerd",
    "prometheus": "prometheus",
    "pgbouncer": "pgbouncer",
    "postgresql-15": "postgresql",
}
# Debian asks this program before it starts a service; 101 means no.
POLICY = Path("/usr/sbin/policy-rc.d")
REFUSAL = "#!/bin/sh\nexit 101\n"


def missing() -> list[str]:
    """The packages that a local cluster lacks."""
    absent = absent_of(COMMANDS)
    if not any((path / "bridge").exists() for path in CNI_PLUGINS):
        absent.append("containernetworking-plugins")
    return absent


def absent_of(commands: Mapping[str, str]) -> list[str]:
    """Those packages of which the command is not there."""
    return [package for package, command in commands.items() if shutil.which(command) is None]


def install() -> None:
    """Install what a local cluster lacks."""
    packages = missing()
    if packages:
        install_packages(packages)
    else:
        say("nothing is missing")


def install_packages(packages: Sequence[str]) -> None:
    """Install them, and start none of the services that come along. Raises Impossible where that cannot be done."""
    if shutil.which("apt-get") is None:
        raise Impossible(f"there is no apt here: install {', '.join(packages)} in the way of this system")
    if os.geteuid() != 0:
        raise Impossible(f"installing needs root: apt-get install {' '.join(packages)}")
    say(f"installing {', '.join(packages)}")
    try:
        _apt("update")
    except Failure as failure:
        say(f"going on with the package lists that are here: {failure}")
    with _services_stay_down(packages):
        _apt("install", "--no-install-recommends", *packages)


def _apt(*arguments: str) -> None:
    run_with_progress(
        ["apt-get", "--quiet", "--yes", *arguments],
        f"apt-get {arguments[0]}",
        progress=str.strip,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )


@contextmanager
def _services_stay_down(packages: Sequence[str]) -> Iterator[None]:
    """Only the programs are wanted: the cluster runs its own containerd, the tests their own Prometheus."""
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text(REFUSAL)
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            POLICY.unlink()
    if Path("/run/systemd/system").exists():
        for package in SERVICES.keys() & set(packages):
            run(["systemctl", "disable", "--now", SERVICES[package]])
