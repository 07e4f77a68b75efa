"""Whether the database lets in as many connections as the wanted pods open. Pure; used by `pool_status`."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.resources.conditions import PoolCondition, Reason

from perdure_operator.plan.conditions import condition

WORKER_CONNECTIONS = 11
"""Of one worker pod: two for the journal, one each for claims, beats, pages of history, listening, news, reports,
wakes, sweeps and retention. SQL of steps comes on top, as far as steps ask for it. A test counts them."""

OPERATOR_CONNECTIONS = 11
"""Of an operator: eight for its statements, one each for leading, listening and sweeps."""


@dataclass(frozen=True, slots=True)
class Connections:
    """`most`: what the server lets in. `other_pods`: wanted by all other pools of this installation."""

    most: int
    other_pods: int


def connections_suffice(known: Connections, pods: int, generation: int) -> dict[str, object]:
    """The condition for a pool that wants so many pods."""
    needed = (pods + known.other_pods) * WORKER_CONNECTIONS + OPERATOR_CONNECTIONS
    counted = (
        f"{pods} pods of this pool and {known.other_pods} of others open up to {needed} connections with the "
        f"operator's, and Postgres lets in {known.most}"
    )
    if needed <= known.most:
        return condition(PoolCondition.CONNECTIONS_SUFFICE, True, Reason.ENOUGH_CONNECTIONS, counted, generation)
    message = f"{counted}: raise max_connections, lower scaling.max, or put a pooler between (database.pooler)"
    return condition(PoolCondition.CONNECTIONS_SUFFICE, False, Reason.TOO_FEW_CONNECTIONS, message, generation)
