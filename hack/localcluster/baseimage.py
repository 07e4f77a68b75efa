"""A base image with Python, made of Debian packages, for machines that reach no registry of images."""

import hashlib
import json
import os
import shutil
from pathlib import Path

from localcluster.console import Failure, Impossible, run, run_with_progress, say
from localcluster.engines import Buildah

# The first one has the Python 3.13 of the base image that the Dockerfiles name; the others are for mirrors without it.
SUITES = {"debian": ("trixie", "bookworm"), "ubuntu": ("plucky", "noble")}
PACKAGES = ("ca-certificates", "python3", "python3-venv")
# Nobody reads it in a container, and it is a third of the image. The files of `etc` would tell about the builder.
UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/cache", "var/lib/apt/lists")
FROM_BUILDER = ("etc/apt/sources.list", "etc/hostname", "etc/resolv.conf")
# Names what the above makes: another recipe, another image.
RECIPE = hashlib.sha256(json.dumps([SUITES, PACKAGES, UNUSED, FROM_BUILDER]).encode()).hexdigest()[:8]


def ensure(buildah: Buildah) -> str:
    """The name of the base image in buildah's store, made from packages when it is not there."""
    system, mirror = _package_source()
    for suite in SUITES[system]:
        name = f"localhost/perdure-base:{suite}-{RECIPE}"
        if buildah.has(name):
            return name
        try:
            _make(buildah, suite, mirror, name)
        except Failure as failure:
            say(f"{suite} cannot be had from this machine's package mirror: {failure}")
            continue
        if suite != SUITES[system][0]:
            say(f"note: the images hold the Python of {suite}, which is older than 3.13")
        return name
    raise Failure(f"no base image could be made; give one with --base-image. Tried: {', '.join(SUITES[system])}")


def _package_source() -> tuple[str, str]:
    """This machine's distribution and the mirror that apt uses for it."""
    lines = Path("/etc/os-release").read_text().splitlines()
    about = {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}
    system = about.get("ID", "")
    if system not in SUITES or shutil.which("apt-get") is None:
        raise Impossible("a base image can be made from packages on Debian and Ubuntu only: give one with --base-image")
    if os.geteuid() != 0:
        raise Impossible("making a base image from packages needs root: give one with --base-image")
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]
    for line in run(targets).splitlines():
        mirror, release, component = line.split()
        if (release, component) == (about.get("VERSION_CODENAME"), "main"):
            return system, mirror
    raise Failure("apt knows no mirror of this system: check /etc/apt/sources.list")


def _make(buildah: Buildah, suite: str, mirror: str, name: str) -> None:
    folder = buildah.scratch / f"base-{suite}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        say(f"base image: installing {suite} from packages (about a minute)")
        run_with_progress(
            ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, folder, mirror],
            "base image",
            progress=lambda line: line.removeprefix("I: ").strip(),
        )
        for path in UNUSED:
            for entry in (folder / path).iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        for path in FROM_BUILDER:
            (folder / path).unlink(missing_ok=True)
        buildah.commit_folder(folder, name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
