"""Durable calls as tests want them, and the store's answer to them; everything has a default."""

from typing import Any

from perdure.model.calls import AwaitEvent, AwaitRuns, CallAnswer, Otherwise, OwnCall, Receive, Send, SetEvent, Start
from perdure.model.rows import ClaimedRun, StepWrite
from perdure.model.start import StartOptions
from perdure.model.states import StepStatus
from perdure.model.streams import AwaitStream, CloseStream, WriteStream
from perdure.store import calls
from perdure.store.calls import RunCalls

from tests.store.builders import Connection

TABLES = (
    "workflows",
    "workflow_payloads",
    "workflow_steps",
    "messages",
    "events",
    "events_history",
    "event_waits",
    "run_waits",
    "streams",
    "stream_values",
    "stream_waits",
)


async def everything(conn: Connection) -> list[Any]:
    return [await conn.fetch(f"SELECT * FROM perdure.{table} ORDER BY 1, 2") for table in TABLES]


def step(index: int = 0, seq: int = 1, **fields: Any) -> StepWrite:
    values: dict[str, Any] = {"name": "x", "status": StepStatus.SUCCEEDED, "input": "[]", "output": '"done"'}
    return StepWrite(index, seq, **{**values, **fields})


def start_child(index: int = 0, seq: int = 1, child: str = "", **options: Any) -> Start:
    return Start(step(index, seq), child or f"r1-{index}", "x", "workflow:x", "[1]", StartOptions(**options))


def send(index: int = 0, seq: int = 1, to: str = "r1", topic: str = "t", key: str = "", value: str = '"hi"') -> Send:
    return Send(step(index, seq), to, topic, key or f"r1/{index}", value)


def receive(
    index: int = 0,
    seq: int = 1,
    topic: str = "t",
    otherwise: Otherwise = Otherwise.NOTHING,
    wake_in: float | None = None,
) -> Receive:
    return Receive(step(index, seq, wake_in=wake_in), topic, otherwise)


def set_event(index: int = 0, seq: int = 1, event: str = "e", value: str = "1") -> SetEvent:
    return SetEvent(step(index, seq), event, value)


def await_event(index: int = 0, seq: int = 1, wake_in: float | None = None) -> AwaitEvent:
    return AwaitEvent(step(index, seq, wake_in=wake_in), "setter", "e")


def write_stream(index: int = 0, seq: int = 1, key: str = "s", value: str = "1", *, plain: bool = False) -> WriteStream:
    return WriteStream(step(index, seq), key, value, plain)


def close_stream(index: int = 0, seq: int = 1, key: str = "s", *, plain: bool = False) -> CloseStream:
    return CloseStream(step(index, seq), key, plain)


def await_stream(index: int = 0, seq: int = 1, offset: int = 0, wake_in: float | None = None) -> AwaitStream:
    return AwaitStream(step(index, seq, wake_in=wake_in), "writer", "s", offset)


def await_runs(*runs: str, index: int = -1, seq: int = 1) -> AwaitRuns:
    return AwaitRuns(step(index, seq), runs or ("r9",))


async def execute(
    conn: Connection, run: ClaimedRun, *asked: OwnCall, worker_id: str = "w1", again: bool = False
) -> list[CallAnswer] | None:
    """The answers, None when the run is not this claim's."""
    answers = await calls.execute(conn, worker_id, [RunCalls(run.id, run.fence, asked, again)])
    return answers.get(run.id)


async def one(conn: Connection, run: ClaimedRun, asked: OwnCall, **fields: Any) -> CallAnswer:
    answers = await execute(conn, run, asked, **fields)
    assert answers is not None
    return answers[0]
