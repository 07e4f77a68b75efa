"""Restate: the service, served by hypercorn: `hypercorn -k uvloop -b ADDRESS restate_service:app`."""

import restate

STEPS = 5

service = restate.Service("Bench")


async def noop() -> None:
    return None


@service.handler()
async def chain(ctx: restate.Context, number: int) -> int:
    for step in range(STEPS):
        await ctx.run_typed(f"step {step}", noop)
    return number


app = restate.app([service])
