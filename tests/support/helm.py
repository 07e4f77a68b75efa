"""Helm for tests: find it, render a chart as anybody would, and read what comes out.

Rendering never talks to a cluster. `run` is the plain command, for installations too.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from localcluster import build
from localcluster.console import Failure, Impossible
from localcluster.settings import Settings

from tests.support.tiers import unavailable

ROOT = Path(__file__).resolve().parents[2]
APP_CHART = ROOT / "charts" / "perdure"
CRD_CHART = ROOT / "charts" / "perdure-crds"

# A helm that was not built by its own Makefile believes in Kubernetes 1.20 when it has no cluster to ask.
KUBE_VERSION = "1.34.0"
SECONDS = 60.0

Resource = dict[str, Any]


class HelmFailed(Exception):
    """Helm refused; the text is what a user would read."""


@cache
def binary() -> Path:
    """The helm built for the local cluster, else that of PATH, else it is built now. Skips where none can be had."""
    settings = Settings.from_environment()
    built = settings.binaries / "helm"
    if built.exists():
        return built
    if found := shutil.which("helm"):
        return Path(found)
    try:
        return build.tool(settings, "helm")
    except (Impossible, Failure) as reason:
        unavailable("chart", str(reason))


def run(*arguments: str | Path, stdin: str = "", seconds: float = SECONDS) -> str:
    """Its standard output. Raises HelmFailed with its standard error."""
    done = subprocess.run(
        [binary(), *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=seconds
    )
    if done.returncode != 0:
        raise HelmFailed((done.stderr + done.stdout).strip())
    return done.stdout


def template(
    *arguments: str | Path,
    chart: Path = APP_CHART,
    values: Sequence[Path] = (),
    overrides: Mapping[str, Any] | None = None,
    release: str = "demo",
    namespace: str = "perdure-system",
) -> str:
    """`helm template`: the YAML as printed. `overrides` is one more values file, given as Python."""
    command: list[str | Path] = ["template", release, chart, "--namespace", namespace, "--kube-version", KUBE_VERSION]
    for path in values:
        command += ["--values", path]
    if overrides is not None:
        command += ["--values", "-"]
    return run(*command, *arguments, stdin=yaml.safe_dump(dict(overrides or {})))


def notes(folder: Path, **rendering: Any) -> str:
    """What `helm install` prints at the end, for the arguments of `template`.

    Helm shows it only to those who have a cluster. So a copy of the chart in `folder` puts it into a ConfigMap.
    """
    chart = folder / "chart-with-notes"
    shutil.copytree(APP_CHART, chart, dirs_exist_ok=True)
    text = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "NOTES.txt").unlink()
    (chart / "templates" / "notes.yaml").write_text(
        f'{{{{- define "notes" -}}}}\n{text}{{{{- end }}}}\n'
        'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: notes\ndata:\n  text: {{ include "notes" . | quote }}\n'
    )
    shown: str = only(objects(template(chart=chart, **rendering)), "ConfigMap", "notes")["data"]["text"]
    return shown


def objects(rendered: str) -> list[Resource]:
    """The Kubernetes objects in a rendered text."""
    return [each for each in yaml.safe_load_all(rendered) if each]


def only(found: Sequence[Resource], kind: str, name: str | None = None) -> Resource:
    """The one object of that kind (and name); an AssertionError says which there are."""
    matching = [each for each in found if each["kind"] == kind and (name is None or each["metadata"]["name"] == name)]
    there = [f"{each['kind']} {each['metadata']['name']}" for each in found]
    assert len(matching) == 1, f"wanted one {kind} {name or ''}, found {len(matching)} in {there}"
    return matching[0]
