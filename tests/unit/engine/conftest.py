"""Fixtures of the engine's tests."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.engine import Engine
from tests.support.sealing import SEALED, Outside


@pytest.fixture
def engine() -> Iterator[Engine]:
    threads = ThreadPoolExecutor(4)
    yield Engine(threads)
    threads.shutdown(wait=True)


@pytest.fixture
def sealed(engine: Engine) -> Engine:
    engine.registry.serializers.add(SEALED)
    engine.registry.serializers.use("sealed")
    return engine


@pytest.fixture
def outside(engine: Engine) -> Outside:
    codec = Outside()
    engine.registry.serializers.add_codec(codec)
    engine.registry.serializers.use("", ["outside"])
    return codec
