"""Streams of runs for the body of a workflow, and for its steps: write, close, read from an offset.

As the calls in `calls`, each takes its place in the run when it is called and its outcome is recorded there; inside a
step writing and closing are part of the step.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

from perdure.engine.calls.arguments import decoder_of, limit_of_time, offset_of, run_id_of, stream_name
from perdure.engine.calls.kinds import build
from perdure.engine.calls.streams import CloseTheStream, ReadFromStream, WriteToStream
from perdure.engine.pending import PendingCall
from perdure.engine.stored import begun
from perdure.model.serialization import Serialization, SerializationName
from perdure.model.start import Seconds

T = TypeVar("T")


def write_stream(
    key: str, value: Any, *, serialization: Serialization | SerializationName | None = None
) -> PendingCall[None]:
    """Append a value to a stream of this run. Its values have the offsets 0, 1, 2 … in the order of the writes.

    Durable when awaited, and appended once however often the run is recovered. Inside a step it is part of the step: it
    is there at once, and once more when the step is tried again. Readers get values in their order. `key` is 1 to 255
    printable characters. `serialization`: how the value is written, without it as this run's values are. Raises
    `NotInWorkflow`, `InsideStep` in a sync step, `EncodingFailed`, `PayloadTooLarge`, `InvalidArgument`; when awaited,
    `StreamClosed`.
    """
    name = stream_name(key)
    text, encoding = begun(value, f"the value for stream {name}", serialization)
    return build(WriteToStream(name, value, text, encoding))


def close_stream(key: str) -> PendingCall[None]:
    """Say that nothing more comes to a stream of this run: its readers end after the last value.

    Durable when awaited. Closing it again is nothing. A run's end closes its streams as well, for whoever reads them.
    Raises `NotInWorkflow`, `InsideStep` in a sync step, `InvalidArgument`.
    """
    return build(CloseTheStream(stream_name(key)))


@overload
def read_stream(run_id: str, key: str, offset: int = 0, timeout: Seconds | None = None) -> PendingCall[Any]: ...
@overload
def read_stream(
    run_id: str, key: str, offset: int = 0, timeout: Seconds | None = None, *, type: type[T]
) -> PendingCall[T]: ...
@overload
def read_stream(
    run_id: str, key: str, offset: int = 0, timeout: Seconds | None = None, *, type: Any
) -> PendingCall[Any]: ...
def read_stream(
    run_id: str, key: str, offset: int = 0, timeout: Seconds | None = None, *, type: Any = Any
) -> PendingCall[Any]:
    """The value at an offset of a stream of any run, waiting until it is there.

    `timeout`: seconds or a timedelta by the database's clock, fixed when the call is first awaited and recorded; None
    waits without end, zero only looks. `type`: what the value is read as; without, it is plain JSON. Waiting takes no
    slot. Raises `NotInWorkflow`, `InsideStep`, `InvalidArgument`; when awaited, `StreamTimeout` when there is none in
    time or the stream ends before it, `NonExistentWorkflow`, `DecodingFailed` when it does not fit the type.
    """
    run, name, at, limit = run_id_of(run_id), stream_name(key), offset_of(offset), limit_of_time(timeout)
    return build(ReadFromStream(run, name, at, limit, decoder_of(type)))
