"""The pytest plugin: found by pytest wherever perdure is installed, and doing nothing until a test asks for it.

    async def test_reminder(perdure_env):
        assert await remind.run("Ada") == "reminded"

`perdure_env` is an async fixture: it needs pytest-asyncio. The others do not.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perdure.testing.environment import Environment
    from perdure.testing.server import DatabaseServer

FAILED = pytest.StashKey[bool]()

MARKER = (
    "perdure(always_replay=…, auto_skip=…, patience=…, registry=…, slots=…, run_attempts=…): how the environment of "
    "the fixture perdure_env works; see perdure.testing.Environment"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of the plugin."""
    group = parser.getgroup("perdure")
    group.addoption(
        "--perdure-always-replay",
        action="store_true",
        help="have the workflows of all tests replayed after each durable call, where a test does not say otherwise",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker of the plugin."""
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Have the fixture know whether its test has failed."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def perdure_postgres() -> Iterator[DatabaseServer]:
    """A Postgres for the tests of this session: embedded, or the one that PERDURE_TEST_DATABASE_URL names."""
    from perdure.testing.server import VARIABLE, serving

    with serving(os.environ.get(VARIABLE)) as server:
        yield server


@pytest.fixture
def perdure_database(perdure_postgres: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a migrated database of this test's own; what reads PERDURE_DATABASE_URL finds it there."""
    url = perdure_postgres.create()
    monkeypatch.setenv("PERDURE_DATABASE_URL", url)
    yield url
    perdure_postgres.drop(url)


def _async_fixture(function: Callable[..., Any]) -> Any:
    """As pytest-asyncio wants it in each of its modes, where that is installed."""
    if importlib.util.find_spec("pytest_asyncio") is None:
        return pytest.fixture(function)
    import pytest_asyncio

    return pytest_asyncio.fixture(function)


@_async_fixture
async def perdure_env(request: pytest.FixtureRequest, perdure_database: str) -> AsyncIterator[Environment]:
    """A launched environment with the workflows of the default registry, on a database of this test's own.

    Fails the test when faults that it ordered never happened.
    """
    from perdure.testing.environment import Environment

    options: dict[str, Any] = {}
    if request.config.getoption("--perdure-always-replay"):
        options["always_replay"] = True
    for marker in reversed(list(request.node.iter_markers("perdure"))):
        options.update(marker.kwargs)
    async with Environment(perdure_database, **options) as env:
        yield env
        if request.node.stash.get(FAILED, False):
            env.faults.forget()
