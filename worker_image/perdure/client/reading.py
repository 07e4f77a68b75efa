"""What a client reads that runs publish: events and streams. `Client` takes these functions as its methods.

The waiting itself, with one question a tick for all, is in `waits`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pydantic_core import from_json

from perdure.engine.calls.arguments import decoder_of, event_name, limit_of_time, offset_of, run_id_of, stream_name
from perdure.engine.codec import Decoder
from perdure.model.start import Seconds
from perdure.store.streams import Reader

if TYPE_CHECKING:
    from perdure.client.client import Client

T = TypeVar("T")


# fmt: off
@overload
async def get_event(self: Client, run_id: str, name: str, timeout: Seconds | None = None) -> Any: ...  # noqa: ASYNC109
@overload
async def get_event(
    self: Client, run_id: str, name: str, timeout: Seconds | None = None, *, type: type[T]  # noqa: ASYNC109
) -> T | None: ...
@overload
async def get_event(
    self: Client, run_id: str, name: str, timeout: Seconds | None = None, *, type: Any  # noqa: ASYNC109
) -> Any: ...
# fmt: on
async def get_event(
    self: Client,
    run_id: str,
    name: str,
    timeout: Seconds | None = None,  # noqa: ASYNC109 - zero and the end of it are no errors
    *,
    type: Any = Any,
) -> Any:
    """The value that a run has published with `perdure.set_event`, waiting for it; None when there is none in time.

    `timeout`: seconds or a timedelta; None waits without end, zero only looks. `type`: what it is read as; without, it
    is plain JSON. All that wait share a question a tick, at least one a second. Also for a run that does not exist yet,
    or has ended. Raises `InvalidArgument`, `StoreUnavailable`, `DecodingFailed`, `UnknownSerialization`.
    """
    decoder, limit = decoder_of(type), limit_of_time(timeout)
    text, what = await self.waits.event(run_id_of(run_id), event_name(name), limit), f"event {name} of run {run_id}"
    text = None if text is None else await self.serializers.fetch(text, what)
    if text is None or text == "null":
        return None
    return from_json(text) if decoder is None else decoder.decode(text, what)


@overload
def read_stream(
    self: Client, run_id: str, key: str, offset: int = 0, timeout: Seconds | None = None
) -> AsyncGenerator[Any, None]: ...
@overload
def read_stream(
    self: Client, run_id: str, key: str, offset: int = 0, timeout: Seconds | None = None, *, type: type[T]
) -> AsyncGenerator[T, None]: ...
@overload
def read_stream(
    self: Client, run_id: str, key: str, offset: int = 0, timeout: Seconds | None = None, *, type: Any
) -> AsyncGenerator[Any, None]: ...
def read_stream(
    self: Client, run_id: str, key: str, offset: int = 0, timeout: Seconds | None = None, *, type: Any = Any
) -> AsyncGenerator[Any, None]:
    """The values that a run writes with `perdure.write_stream`, from an offset on, as they come:
    `async for value in client.read_stream(handle.id, "tokens"): …`. Ends when the stream is closed or the run ends.

    `timeout`: seconds or a timedelta that the next value may take, else `StreamTimeout`; None waits without end, zero
    gives what is there. `type`: what each is read as; without, they are plain JSON. All readers of the client share a
    question a tick. Raises `InvalidArgument`; when it is iterated, `NonExistentWorkflow`, `StoreUnavailable`,
    `DecodingFailed`, `UnknownSerialization`.
    """
    decoder, limit = decoder_of(type), limit_of_time(timeout)
    return _values(self, Reader(run_id_of(run_id), stream_name(key), offset_of(offset)), limit, decoder)


async def _values(
    client: Client, reader: Reader, limit: float | None, decoder: Decoder | None
) -> AsyncGenerator[Any, None]:
    number = reader.offset
    async with aclosing(client.waits.stream(reader, limit)) as texts:
        async for text in texts:
            what = f"value {number} of stream {reader.key} of run {reader.run_id}"
            text = await client.serializers.fetch(text, what)
            yield from_json(text) if decoder is None else decoder.decode(text, what)
            number += 1
