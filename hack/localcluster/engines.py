"""What builds the images: the container engine that answers, else buildah, which needs no daemon."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from localcluster.console import Impossible, run, run_with_progress
from localcluster.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PUBLIC_BASE = "docker.io/library/python:3.13-slim"
# The commands of buildah run with the host's network: this machine may reach its package index in no other way.
NETWORK = "--network=host"


@dataclass(frozen=True)
class Image:
    """One image of this project; `name` is what charts and manifests call it."""

    name: str
    dockerfile: Path
    tag: str

    @property
    def reference(self) -> str:
        return f"{self.name}:{self.tag}"


@dataclass(frozen=True)
class Inputs:
    """What a build sees besides the sources: `secrets` by id, and folders mounted at their own path."""

    base: str
    secrets: dict[str, Path]
    folders: tuple[Path, ...]

    def arguments(self) -> list[str]:
        secrets = [f"--secret=id={name},src={path}" for name, path in self.secrets.items()]
        return [f"--build-arg=BASE_IMAGE={self.base}", *secrets]


class Engine(Protocol):
    def build(self, image: Image, inputs: Inputs) -> None:
        """Build it and give it its name."""

    def save(self, image: Image, archive: Path) -> None:
        """Write it as a docker archive."""


class ContainerEngine:
    """docker or podman."""

    def __init__(self, program: str) -> None:
        self._program = program

    def build(self, image: Image, inputs: Inputs) -> None:
        argv = [self._program, "build", f"--tag={image.reference}", f"--file={image.dockerfile}", *inputs.arguments()]
        if self._program == "podman":
            argv += [f"--volume={folder}:{folder}:ro" for folder in inputs.folders]
        # Docker builds with mounts only by BuildKit, which older versions leave off.
        env = {**os.environ, "DOCKER_BUILDKIT": "1"}
        run_with_progress([*argv, ROOT], image.reference, progress=_last_line, env=env)

    def save(self, image: Image, archive: Path) -> None:
        run([self._program, "save", f"--output={archive}", image.reference])


class Buildah:
    """Keeps its images in the project's cache: those of the user, and their clean-up, are not ours to touch."""

    def __init__(self, settings: Settings) -> None:
        if shutil.which("buildah") is None:
            raise Impossible("no container engine answers and buildah is missing: `hack/cluster deps` installs it")
        if os.geteuid() != 0:
            raise Impossible("no container engine answers, and buildah needs root here")
        self.scratch = settings.images / "tmp"
        self.scratch.mkdir(parents=True, exist_ok=True)
        # Overlays do not stack.
        driver = "vfs" if settings.on_overlay() else "overlay"
        self._command = [
            "buildah",
            f"--root={settings.images / 'storage'}",
            f"--runroot={self.scratch / 'run'}",
            f"--storage-driver={driver}",
        ]
        # chroot: a sandbox may forbid the namespaces of a container. TMPDIR also holds the caches of RUN --mount.
        self._env = {**os.environ, "BUILDAH_ISOLATION": "chroot", "TMPDIR": str(self.scratch)}

    def build(self, image: Image, inputs: Inputs) -> None:
        volumes = [f"--volume={folder}:{folder}:ro" for folder in inputs.folders]
        arguments = [f"--tag={image.reference}", f"--file={image.dockerfile}", NETWORK]
        run_with_progress(
            [*self._command, "build", "--layers", "--pull-never", *arguments, *inputs.arguments(), *volumes, ROOT],
            image.reference,
            progress=_last_line,
            env=self._env,
        )

    def save(self, image: Image, archive: Path) -> None:
        self._run("push", "--quiet", image.reference, f"docker-archive:{archive}:{image.reference}")

    def has(self, name: str) -> bool:
        return bool(self._run("images", "--quiet", "--filter", f"reference={name}").strip())

    def commit_folder(self, folder: Path, name: str) -> None:
        """Make an image of one layer from a folder."""
        container = self._run("from", "scratch").strip()
        try:
            self._run("add", "--quiet", container, folder, "/")
            self._run("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
            self._run("commit", "--quiet", container, name)
        finally:
            self._run("rm", container)

    def _run(self, *arguments: str | Path) -> str:
        return run([*self._command, *arguments], env=self._env)


def _last_line(line: str) -> str:
    return line.strip()[:100]
