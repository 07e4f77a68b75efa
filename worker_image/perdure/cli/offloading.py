"""`perdure offload sweep`: removes from an object store what no row of the database names any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from perdure.codecs import Offload
from perdure.codecs.sweeping import Swept, sweep
from perdure.engine.registry import Registry
from perdure.errors import ConfigurationError, StoreUnavailable
from perdure.store import migrate, offloaded, pool

APPLICATION = "perdure-offload-sweep"


def sweep_all(registry: Registry, *, keep_days: int, dry_run: bool) -> dict[str, Swept]:
    """What was found of each `Offload` that is registered, by its name. Raises `ConfigurationError` when there is none,
    `InvalidArgument`, `StoreUnavailable`, `PayloadsUnavailable`."""
    found = [codec for codec in registry.serializers.codecs() if isinstance(codec, Offload)]
    if not found:
        raise ConfigurationError("no perdure.codecs.Offload is registered by these modules")
    return asyncio.run(_sweep(found, keep_days, dry_run))


def lines(swept: dict[str, Swept], *, dry_run: bool) -> list[str]:
    """One sentence for each."""
    removed = "would be removed" if dry_run else "removed"
    return [
        f"{name}: {each.values} values, {each.named} in use, {each.removed} {removed}" for name, each in swept.items()
    ]


async def _sweep(codecs: list[Offload], keep_days: int, dry_run: bool) -> dict[str, Swept]:
    async def names(prefix: str) -> AsyncIterator[str]:
        # Tables are read whole: that may take as long as it takes.
        connection = await pool.connect(pool.database_url(), application_name=APPLICATION, statement_timeout=0)
        try:
            await migrate.check(connection)
            async for name in offloaded.names(connection, prefix):
                yield name
        finally:
            await connection.close()

    try:
        return {codec.name: await sweep(codec, names, keep_days=keep_days, dry_run=dry_run) for codec in codecs}
    except pool.connection_errors as error:
        raise StoreUnavailable(f"the database cannot be read: {error}") from error
