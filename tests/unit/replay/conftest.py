"""Fixtures of the tests of replays."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.engine import Engine


@pytest.fixture
def engine() -> Iterator[Engine]:
    threads = ThreadPoolExecutor(2)
    yield Engine(threads)
    threads.shutdown(wait=True)


@pytest.fixture
def present() -> Iterator[Engine]:
    """The code of now, beside that of before (`engine`), under the same names."""
    threads = ThreadPoolExecutor(2)
    yield Engine(threads)
    threads.shutdown(wait=True)
