"""A real API server takes what the charts render, strictly, and admits its pods as restricted."""

import secrets
from collections.abc import Iterator

import pytest
import yaml

from tests.chart import cases
from tests.cluster.release import Release
from tests.support.cluster import RESTRICTED

# The values in ci/ name these; each stands for a namespace of the test's own.
NAMESPACES = ("perdure-system", "durable-system", "team-a", "team-b")


@pytest.fixture(scope="module")
def namespaces(release: Release) -> Iterator[dict[str, str]]:
    """Restricted namespaces that stand for those in the values, removed at the end."""
    own = {name: f"{name}-{secrets.token_hex(3)}" for name in NAMESPACES}
    warn = RESTRICTED.replace("enforce", "warn")
    for name in own.values():
        release.kubectl.run("create", "namespace", name)
        release.kubectl.run("label", "namespace", name, RESTRICTED, warn)
    yield own
    release.kubectl.run("delete", "namespace", *own.values(), "--wait=false")


@pytest.mark.parametrize("case", cases.CASES)
def test_the_api_server_takes_every_object(case: str, release: Release, namespaces: dict[str, str]) -> None:
    rendered = cases.rendered(case)
    for name, own in namespaces.items():
        rendered = rendered.replace(f"namespace: {name}", f"namespace: {own}")
    # The Prometheus operator's kinds are not there.
    objects = [each for each in yaml.safe_load_all(rendered) if each and "monitoring" not in each["apiVersion"]]

    text = yaml.safe_dump_all(objects)
    everywhere = release.cluster.kubectl("")
    done = everywhere.ask("apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=text)

    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, "a pod that restricted does not admit, or a field that is not known"
    assert len(done.stdout.splitlines()) == len(objects)
