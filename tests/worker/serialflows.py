"""Workflows whose values a serializer of their own writes, and the serializer, which a bootstrap hook registers."""

import json
import secrets
from threading import Event
from typing import Any

import perdure
from perdure import idempotency
from perdure.api import step, transaction, workflow
from perdure.engine.registry import Registry
from perdure.worker.link import Connection

registry = Registry()


class Sealed:
    """Writes the same value otherwise each time, as encryption does."""

    name = "sealed"

    def serialize(self, value: Any) -> str:
        return f"{secrets.token_hex(4)}.{json.dumps(value).encode().hex()}"

    def deserialize(self, text: str) -> Any:
        return json.loads(bytes.fromhex(text.partition(".")[2]))


SEALED = Sealed()


class Stuck:
    """A codec whose outside never answers."""

    name = "stuck"
    blocking = True

    def encode(self, text: str) -> str | None:
        print("the codec was asked", flush=True)
        Event().wait()
        return text

    def decode(self, text: str) -> str:
        return text


def register_stuck() -> None:
    """Another bootstrap hook."""
    perdure.register_codec(Stuck())


def register() -> None:
    """A bootstrap hook."""
    perdure.register_serializer(SEALED)


def unseal(text: str | None) -> Any:
    assert text is not None
    assert text.startswith("!sealed:"), text
    return SEALED.deserialize(text.removeprefix("!sealed:"))


@step(registry=registry)
async def charge(card: str, cents: int) -> dict[str, Any]:
    return {"card": card, "cents": cents}


@transaction(registry=registry)
async def count(connection: Connection, name: str) -> str:
    await connection.execute("CREATE TABLE IF NOT EXISTS public.counted (name text)")
    await connection.execute("INSERT INTO public.counted VALUES ($1)", name)
    return name


@step(registry=registry)
async def remembered(key: str) -> str:
    async def body() -> str:
        return f"made for {key}"

    return await idempotency.remember(key, body)


@workflow(name="sealed.child", registry=registry)
async def child(card: str) -> str:
    return card[::-1]


@workflow(name="sealed.pay", registry=registry)
async def pay(card: str, cents: int) -> dict[str, Any]:
    """Uses every kind of value that a run has."""
    paid = await charge(card, cents)
    await count(card)
    await perdure.set_event("paid", paid)
    await perdure.write_stream("log", card)
    await perdure.write_stream("log", {"open": True}, serialization="portable")
    message = await perdure.recv("confirm", 20)
    reverse = await child.run(card)
    return {**paid, "message": message, "reverse": reverse, "kept": await remembered(f"key of {card}")}


@workflow(name="sealed.portable", registry=registry, serialization="portable")
async def portable(words: list[str], upper: bool = False) -> dict[str, Any]:
    text = " ".join(words)
    return {"text": text.upper() if upper else text}


@perdure.workflow(name="sealed.default")
async def default(card: str) -> str:
    return card
