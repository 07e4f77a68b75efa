"""A workflow whose step registers another one, when the worker has begun long ago."""

import perdure


@perdure.step(name="late.register")
async def register() -> str:
    async def late() -> None: ...

    try:
        perdure.workflow(name="late.late")(late)
    except perdure.AlreadyLaunched as error:
        return str(error)
    return "it was registered"


@perdure.workflow(name="late.flow")
async def flow() -> str:
    return await register()
