"""What the rows of a database keep elsewhere: read by `perdure offload sweep`, which removes the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from perdure.store.pool import transaction
from perdure.store.statements import sql

PAGE = 500
"""Runs looked at in one statement: with their steps that is some ten thousand rows."""

BEYOND = "\U0010ffff"
"""Behind every id."""


async def names(connection: asyncpg.Connection[Any], prefix: str) -> AsyncIterator[str]:
    """What follows `prefix` in every stored value that begins with it, at one instant; some of it more than once.

    It reads all of the database, in small statements of one read-only transaction.
    """
    async with transaction(connection, isolation="repeatable_read", readonly=True):
        for row in await connection.fetch(sql("offload_others"), prefix):
            yield row["name"]
        scope, key = "", ""
        while scope is not None:
            page = await connection.fetchrow(sql("offload_keys"), scope, key, PAGE, prefix)
            assert page is not None
            scope, key = page["scope"], page["key"]
            for name in page["names"]:
                yield name
        last: str | None = ""
        while last is not None:
            first = last
            page = await connection.fetchrow(sql("offload_payloads"), first, PAGE, prefix)
            assert page is not None
            last = page["last"]
            for name in page["names"]:
                yield name
            for row in await connection.fetch(sql("offload_steps"), first, BEYOND if last is None else last, prefix):
                yield row["name"]
