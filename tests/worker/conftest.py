"""Every test of this tier has its own migrated database with the tables of `flows`, and no predecessor's state."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from perdure.store.pool import connect

from tests.support.journalbench import Bench, bench
from tests.worker import flows


@pytest.fixture
async def db(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Address of the test's database; steps find it in the environment, as in a pod."""
    monkeypatch.setenv("PERDURE_DATABASE_URL", pg_url)
    connection = await connect(pg_url, application_name="test")
    await connection.execute(flows.TABLES)
    await connection.close()
    yield pg_url


@pytest.fixture
async def conn(db: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    connection = await connect(db, application_name="test")
    yield connection
    await connection.close()


@pytest.fixture
async def here(conn: "asyncpg.Connection[Any]", db: str) -> AsyncIterator[Bench]:
    """A registered worker with a journal."""
    async with bench(conn, db) as made:
        yield made
