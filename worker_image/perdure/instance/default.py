"""The instance of the default registry, for programs that need no more than one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from perdure.api import registering
from perdure.engine.serialization import Codec, Serializer
from perdure.errors import AlreadyLaunched
from perdure.instance.instance import Instance, InstanceSettings


async def launch(
    url: str | None = None,
    namespace: str = "default",
    pool: str = "default",
    *,
    listen: bool = True,
    serializer: Serializer | None = None,
    codecs: Sequence[Codec] = (),
    **settings: Unpack[InstanceSettings],
) -> Instance:
    """Launch an instance of everything that `@perdure.workflow` and `@perdure.step` have registered, and return it.

    From then on `await workflow.start(…)` and `await workflow.run(…)` work outside of runs. As `Instance` and its
    `launch`; raises `AlreadyLaunched` when there is one.
    """
    if registering.default_registry.instance is not None:
        raise AlreadyLaunched("there is an instance of the default registry: await perdure.shutdown() first")
    instance = Instance(
        url,
        namespace,
        pool,
        registry=registering.default_registry,
        listen=listen,
        serializer=serializer,
        codecs=codecs,
        **settings,
    )
    try:
        return await instance.launch()
    except BaseException:
        await instance.shutdown()
        raise


async def shutdown() -> None:
    """Shut down the instance of the default registry, if there is one: see `Instance.shutdown`."""
    instance = registering.default_registry.instance
    if isinstance(instance, Instance):
        await instance.shutdown()
