"""Messages to runs from outside of them: for `Client.send` and `Handle.send`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.client.database import Database
from perdure.engine.calls.arguments import key_of, run_id_of, topic_of
from perdure.engine.calls.messages import callers_key
from perdure.engine.codec import encode
from perdure.engine.serialization import Serializers
from perdure.errors import NonExistentWorkflow, StoreUnavailable
from perdure.model.serialization import Serialization, SerializationName, chosen
from perdure.model.start import new_run_id
from perdure.store import clients as store
from perdure.store.wakes import Message, announce

Pools = set[tuple[str, str]]
"""Pools, each in a namespace, in which a run became claimable."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as a caller gives it. `choice`: how its value is written."""

    value: Any
    topic: str
    key: str | None
    choice: Serialization | SerializationName | None = None

    async def text(self, serializers: Serializers) -> str:
        """Its value as it is stored. Raises `EncodingFailed`, `InvalidArgument`."""
        choice = chosen(self.choice)
        return await serializers.write(
            encode(self.value, "the message", serializers.encoding(choice)), "the message", choice
        )


async def send_message(database: Database, serializers: Serializers, to: str, outgoing: Outgoing) -> Pools:
    """Put the message into the run's inbox, durably, and wake the run if it waits for that; where it is claimable then.

    Raises as `Client.send`.
    """
    text, topic, key = await outgoing.text(serializers), outgoing.topic, outgoing.key
    message = Message(
        run_id_of(to), topic_of(topic), f"sent:{new_run_id()}" if key_of(key) is None else callers_key(str(key))
    )
    if not await database.persist(store.send, to, topic, message.key, text):
        raise NonExistentWorkflow(f"there is no run {to} to send a message to")
    try:
        woken = await database.call(announce, [message], [])
    except StoreUnavailable:
        # It is there; the sweeps of the workers wake its receiver.
        return set()
    return {(each.namespace, each.pool) for each in woken if each.ready}
