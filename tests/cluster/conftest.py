"""The cluster, and the one installed release that all tests of this tier share."""

from collections.abc import Generator

import pytest

from tests.cluster.release import release
from tests.support.cluster import Cluster, cluster, namespace, python_image

__all__ = ["cluster", "namespace", "python_image", "release"]

# The first test of a session also waits for images, charts and pods.
SECONDS = 900


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow_cluster: starts a second cluster, half a minute each")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "cluster" and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test that has a namespace of its own shows what is in it, before it goes away."""
    report = yield
    fixtures = getattr(item, "funcargs", {})
    found: Cluster | None = fixtures.get("cluster")
    if report.failed and report.when == "call" and found and "namespace" in fixtures:
        report.sections.append(("namespace", found.diagnostics(fixtures["namespace"].namespace)))
    return report
