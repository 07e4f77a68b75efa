"""`perdure.now`: an instant of the database's clock, recorded, so that a replay goes by the same one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from perdure.engine.calls.calls import Calls
from perdure.engine.calls.kinds import Common, Place
from perdure.engine.context import Scope
from perdure.errors import DecodingFailed
from perdure.model.calls import CallName


@dataclass(frozen=True)
class Now(Common):
    """What time it is."""

    name = CallName.NOW
    in_steps = True
    outside = True

    @property
    def arguments(self) -> list[Any]:
        """None."""
        return []

    async def perform(self, calls: Calls, at: Place) -> datetime:
        """Look, and record it with what is written next."""
        with calls.busy():
            instant = (await calls.look(calls.log.clock())).astimezone(UTC)
            calls.succeed(at, json.dumps(instant.isoformat()))
            return instant

    def read_back(self, output: str) -> datetime:
        """The instant."""
        try:
            return datetime.fromisoformat(json.loads(output))
        except (ValueError, TypeError) as error:
            raise DecodingFailed(f"{output[:100]} is recorded, which is no time") from error

    async def plainly(self, scope: Scope | None) -> datetime:
        """Where nothing is recorded: the time of this machine."""
        now = datetime.now(UTC)
        return now if scope is None else now + scope.execution.skipped
