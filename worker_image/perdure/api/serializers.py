"""Serializers and codecs of an application, named once in each process that reads or writes with them.

Named is not used: all that are named read; which of them write is a setting of the worker (`PERDURE_SERIALIZER`,
`PERDURE_CODECS`) or said where a client or an instance is made. So a new one is rolled out to all readers first.
"""

from __future__ import annotations

from perdure.api import registering
from perdure.engine.registry import Registry
from perdure.engine.serialization import Codec, Serializer


def register_serializer(serializer: Serializer, *, registry: Registry | None = None) -> None:
    """Have this process read what the serializer has written, and write with it where it is configured.

    Call it where workflows are registered, or in the bootstrap hook. The same object again is no error. Raises
    `RegistrationError` for what is no serializer or has a name that cannot be used, `AlreadyRegistered`.
    """
    _registry(registry).serializers.add(serializer)


def register_codec(codec: Codec, *, registry: Registry | None = None) -> None:
    """Have this process read what the codec has written, and write through it where it is configured. As
    `register_serializer`; raises as that does."""
    _registry(registry).serializers.add_codec(codec)


def _registry(registry: Registry | None) -> Registry:
    return registering.default_registry if registry is None else registry
