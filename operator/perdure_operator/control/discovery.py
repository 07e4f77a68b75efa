"""Whether the API server serves our kinds. Without them the operator waits, says so once, and is not ready."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from perdure.resources.common import API_VERSION
from perdure.resources.kinds import KINDS
from perdure.telemetry.logs import get_logger

from perdure_operator.kube.client import Client
from perdure_operator.kube.errors import ApiRefused, ApiUnavailable

log = get_logger(__name__)

MISSING_SECONDS = 2.0
"""Time between two looks while the kinds are missing: installing the CRDs takes a person seconds."""

PRESENT_SECONDS = 60.0
"""Time between two looks afterwards, for the readiness probe."""


class Discovery:
    """Looks until cancelled and tells `found` what it saw. `wait` returns when the kinds are there."""

    def __init__(self, client: Client, found: Callable[[bool], None]) -> None:
        self._client = client
        self._found = found
        self._present = asyncio.Event()

    async def wait(self) -> None:
        """Until the kinds have been seen once."""
        await self._present.wait()

    async def run(self) -> None:
        """No answer changes nothing: what was there is taken to be there."""
        said: frozenset[str] | None = None
        while True:
            with contextlib.suppress(ApiUnavailable):
                missing = await self._missing()
                self._found(not missing)
                if not missing:
                    self._present.set()
                elif said != missing:
                    text = "the API server does not serve our kinds; install the chart perdure-crds"
                    log.warning(text, missing=sorted(missing))
                said = missing
            await asyncio.sleep(PRESENT_SECONDS if said == frozenset() else MISSING_SECONDS)

    async def _missing(self) -> frozenset[str]:
        wanted = frozenset(kind.plural for kind in KINDS)
        try:
            served = await self._client.request("GET", f"/apis/{API_VERSION}")
        except ApiRefused as error:
            if error.status == 404:
                return wanted
            raise
        return wanted - {resource.get("name") for resource in served.get("resources") or []}
