"""Two workflows under one name: no worker may guess which of them a run means."""

import perdure


@perdure.workflow(name="t.twice")
async def one() -> None: ...


@perdure.workflow(name="t.twice")
async def another() -> None: ...
