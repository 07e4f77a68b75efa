"""The command `hack/images`: builds the project's two images and writes them as archives for `load-image`."""

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from localcluster import baseimage
from localcluster.console import Failure, duration, exclusively, say
from localcluster.engines import PUBLIC_BASE, ROOT, Buildah, ContainerEngine, Engine, Image, Inputs
from localcluster.hostpip import HostPip
from localcluster.kind import answering_engine
from localcluster.providers import choose
from localcluster.settings import Settings

DOCKERFILES = {"operator": ROOT / "operator" / "Dockerfile", "worker": ROOT / "worker_image" / "Dockerfile"}
# What the Dockerfiles copy, besides the lock files; .dockerignore says the same to the engine.
CONTEXT = ("LICENSE", "README.md", "pyproject.toml", "operator", "worker_image")
IGNORED = {"__pycache__"}
DESCRIPTION = """Build perdure-operator and perdure-worker: by docker or podman where one answers, else by buildah on
a base image made of Debian packages. Prints the archives, one a line. What has not changed is not built again."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="hack/images", description=DESCRIPTION)
    parser.add_argument("which", nargs="*", choices=(*DOCKERFILES, []), help="operator, worker; none means both")
    parser.add_argument("--tag", default="dev")
    parser.add_argument("--base-image", help=f"an image with Python 3.11 or newer, instead of {PUBLIC_BASE}")
    parser.add_argument("--load", action="store_true", help="also load them into the cluster of hack/cluster")
    options = parser.parse_args(arguments)
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    settings = Settings.from_environment()
    images = [Image(f"perdure-{which}", DOCKERFILES[which], options.tag) for which in options.which or DOCKERFILES]
    try:
        archives = build(settings, images, options.base_image)
        if options.load:
            choose(settings).load_image(archives)
    except Failure as failure:
        say(f"error: {failure}")
        return failure.exit_code
    for archive in archives:
        print(archive)
    return 0


def build(settings: Settings, images: Sequence[Image], base: str | None = None) -> list[Path]:
    """Build those of `images` whose sources have changed, and give the archive of each."""
    settings.images.mkdir(parents=True, exist_ok=True)
    archives = {image: settings.images / f"{image.name}-{image.tag}.tar" for image in images}
    with exclusively(settings.images / "build.lock", "another process is building images: waiting for it"):
        digests = {image: _digest(image, base) for image in images}
        stale = [image for image in images if not _is_current(archives[image], digests[image])]
        if not stale:
            say("the images are as the sources are")
            return list(archives.values())
        engine, base = _engine(settings, base)
        with _inputs(base) as inputs:
            for image in stale:
                started = time.monotonic()
                archive = archives[image]
                say(f"{image.reference}: building")
                _stamp(archive).unlink(missing_ok=True)
                engine.build(image, inputs)
                archive.unlink(missing_ok=True)
                engine.save(image, archive)
                _stamp(archive).write_text(digests[image])
                size = archive.stat().st_size / 1e6
                say(f"{image.reference}: {size:.0f} MB after {duration(time.monotonic() - started)}")
    return list(archives.values())


def _engine(settings: Settings, base: str | None) -> tuple[Engine, str]:
    if program := answering_engine():
        return ContainerEngine(program), base or PUBLIC_BASE
    buildah = Buildah(settings)
    return buildah, base or baseimage.ensure(buildah)


@contextmanager
def _inputs(base: str) -> Iterator[Inputs]:
    pip = HostPip.read()
    with tempfile.TemporaryDirectory(prefix="perdure-build-") as folder:
        configuration = Path(folder, "pip.conf")
        configuration.touch(mode=0o600)  # an index's password may be in it
        configuration.write_text(pip.configuration())
        secrets = {"pip": configuration}
        if pip.ca_bundle:
            secrets["ca"] = pip.ca_bundle
        yield Inputs(base, secrets, pip.folders)


def _digest(image: Image, base: str | None) -> str:
    """Of all that goes into an image. The engine's own cache knows too, but takes seconds to compare files."""
    digest = hashlib.sha256(f"{base or baseimage.RECIPE} {image.reference}".encode())
    paths = [image.dockerfile, *(ROOT / name for name in CONTEXT), *sorted(ROOT.glob("requirements*.lock"))]
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and not IGNORED & set(file.parts):
                digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _stamp(archive: Path) -> Path:
    return archive.with_suffix(".stamp")


def _is_current(archive: Path, digest: str) -> bool:
    return archive.exists() and _stamp(archive).exists() and _stamp(archive).read_text() == digest
