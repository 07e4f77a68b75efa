"""What to believe when the answer to a commit never came (protocol: "Commit outcome unknown").

The statement was sent again and the run is not owned any more. That looks the same whether the first copy ended the
run or somebody took it; the row tells who ended the last ownership. Only what is *reported* depends on this: under
rules R1 to R3 no write can be doubled or lost by it.
"""

from __future__ import annotations

from perdure.model.states import RunStatus
from perdure.store.journal import was_mine
from perdure.worker.link import Link


async def ended_by_us(link: Link, worker_id: str, run_id: str, fence: int) -> RunStatus | None:
    """The status that our own ending gave the run, None when it was taken from us. Raises what the store raises."""
    return await link.call(was_mine, worker_id, run_id, fence)
