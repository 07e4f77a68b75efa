"""Fixtures of the engine's tests."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.engine import Engine


@pytest.fixture
def engine() -> Iterator[Engine]:
    threads = ThreadPoolExecutor(4)
    yield Engine(threads)
    threads.shutdown(wait=True)
