"""The one workflow of the faults: interprets a program. Imported by the workers.

Every body first leaves its trace (`effects`), then does what its node says. Bodies that fail do so by what is
recorded, never by what this process remembers, so that it does not matter who runs them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import perdure
from perdure import idempotency

from tests.faults import managed, races, sagas
from tests.faults.effects import begun, begun_sync, run_attempts
from tests.faults.keys import under_a_key
from tests.faults.programs import LISTENS, SPEAKS, WATCHES, Node, mixed
from tests.faults.races import plain
from tests.faults.sql import text

REFUSED = "refused by the database"
"""An output with this text breaks a constraint that only the faults' database has."""

SQL_SECONDS = 6.0
"""For the SQL of one body: more than any lock here is held."""

BAD: dict[str, Callable[[], Any]] = {
    "nul": lambda: "a\0b",
    "surrogate": lambda: "\ud800",
    "nan": lambda: float("nan"),
    "huge": lambda: "x" * 40_000_000,
    "refused": lambda: REFUSED,
}


def _attempt() -> int:
    step = perdure.current().step
    assert step is not None
    return step.attempt


@perdure.step(name="f.sync")
def in_a_thread(key: str, value: int, ms: int) -> int:
    begun_sync(key)
    time.sleep(ms / 1000)
    return mixed(key, value)


@perdure.step(name="f.retried", max_attempts=5, interval=0.05, backoff_rate=1.0)
async def retried(key: str, value: int, ms: int, fails: int) -> int:
    await begun(key)
    await asyncio.sleep(ms / 1000)
    if _attempt() <= fails:
        raise ConnectionError(f"attempt {_attempt()} of {key}")
    return mixed(key, value)


@perdure.step(name="f.parked", max_attempts=4, interval=1.2, backoff_rate=1.0)
async def parked(key: str, value: int, fails: int) -> int:
    """Waits so long between its attempts that the run gives its slot back."""
    await begun(key)
    if _attempt() <= fails:
        raise ConnectionError(f"attempt {_attempt()} of {key}")
    return mixed(key, value)


@perdure.step(name="f.failing")
async def failing(key: str) -> int:
    await begun(key)
    raise ValueError(key)


@perdure.step(name="f.attempted")
async def attempted(key: str, value: int, until: int) -> int:
    await begun(key)
    if run_attempts() + 1 < until:
        raise ValueError(f"attempt {run_attempts() + 1} of the body")
    return mixed(key, value)


@perdure.step(name="f.stubborn", max_attempts=1_000_000, interval=0.3, backoff_rate=1.0)
async def stubborn(key: str) -> int:
    """Fails, again and again."""
    await begun(key)
    raise ConnectionError(key)


@perdure.transaction(name="f.transaction", max_attempts=5, interval=0.05, backoff_rate=1.0)
async def in_a_transaction(connection: Any, key: str, value: int, fails: int, once: bool) -> int:
    """Its row and the step's outcome are committed together; an attempt that fails takes its row with it."""
    await begun(key)
    step = perdure.current().step
    assert step is not None

    async def write() -> None:
        await connection.execute(text("once"), perdure.current().run_id, step.index)

    with _answering(connection):
        if once:
            await idempotency.once(f"transaction/{perdure.current().run_id}/{key}", write)
        else:
            await write()
    if _attempt() <= fails:
        raise ConnectionError(f"attempt {_attempt()} of {key}")
    return mixed(key, value)


@contextmanager
def _answering(connection: Any) -> Iterator[None]:
    """How long the SQL of a body may take is for the body to say: a connection that hangs is cut, and all of it is
    done again."""
    limit = asyncio.get_running_loop().call_later(SQL_SECONDS, connection.terminate)
    try:
        yield
    finally:
        limit.cancel()


@perdure.step(name="f.keyed")
async def keyed(key: str, value: int, how: str, shared: str, fails: int, ms: int) -> int:
    """Does something under an idempotency key and notes what it does, for the checker."""
    await begun(key)
    await under_a_key(shared or f"{how}/{perdure.current().run_id}/{key}", how, fails, ms)
    return mixed(key, value)


@perdure.step(name="f.blocking")
async def blocking(key: str, value: int, ms: int) -> int:
    """An author's mistake: it blocks the loop, perhaps for longer than the lease."""
    await begun(key)
    time.sleep(ms / 1000)  # noqa: ASYNC251 - the mistake
    return mixed(key, value)


@perdure.step(name="f.bad")
async def bad(key: str, how: str) -> Any:
    await begun(key)
    return BAD[how]()


@perdure.step(name="f.poison")
async def poison(key: str) -> int:
    """Ends the process, each time."""
    await begun(key)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@perdure.workflow(name="f.program", version_policy="auto")
async def interpret(program: dict[str, Any]) -> int:
    return await _sequence(program["nodes"], 0)


async def _sequence(nodes: list[Node], value: int) -> int:
    for node in nodes:
        value = await INTERPRETERS[node["kind"]](node, value)
    return value


def _step(node: Node, value: int) -> perdure.PendingCall[int]:
    return (in_a_thread if node["sync"] else plain)(node["key"], value, node["ms"])


def _retried(node: Node, value: int) -> perdure.PendingCall[int]:
    return retried(node["key"], value, node["ms"], node["fails"])


async def _caught(node: Node, value: int) -> int:
    try:
        return await failing(node["key"])
    except ValueError:
        return await _sequence(node["fallback"], mixed(node["key"], value))


async def _gather(node: Node, value: int) -> int:
    results = await perdure.gather(*(CALLS[each["kind"]](each, value) for each in node["steps"]))
    return mixed(node["key"], sum(results))


async def _sleep(node: Node, value: int) -> int:
    await perdure.sleep(node["seconds"])
    return mixed(node["key"], value)


async def _children(node: Node, value: int) -> int:
    handles = [await interpret.start({"nodes": nodes}) for nodes in node["programs"]]
    results = await asyncio.gather(*(handle.result() for handle in handles))
    return mixed(node["key"], sum(results) + value)


async def _handled(node: Node, value: int) -> int:
    handles = [await interpret.start({"nodes": nodes}) for nodes in node["programs"]]
    if node["together"]:
        ends = await asyncio.gather(*(handle.result() for handle in handles), return_exceptions=True)
        results = [_made_of(end) for end in ends]
    else:
        results = [await _one_handled(handle) for handle in handles]
    return await _sequence(node["fallback"], mixed(node["key"], sum(results) + value))


async def _one_handled(handle: Any) -> int:
    try:
        return int(await handle.result())
    except (ValueError, KeyError) as error:
        return _made_of(error)


def _made_of(end: int | BaseException) -> int:
    """What the parent makes of a child's end; what it did not expect ends it."""
    if isinstance(end, BaseException):
        if not isinstance(end, ValueError | KeyError):
            raise end
        return mixed(type(end).__name__, 0)
    return end


async def _late(node: Node, value: int) -> int:
    child = await interpret.options(timeout=node["timeout"]).start({"nodes": node["nodes"]})
    try:
        await child.result()
    except perdure.AwaitedWorkflowCancelled:
        return await _sequence(node["fallback"], mixed(node["key"], value))
    return -1


async def _watched(node: Node, value: int) -> int:
    first = await interpret.options(timeout=node["timeout"]).start({"nodes": node["nodes"]})
    watch = {"kind": "watch", "of": first.id, **{name: node[name] for name in WATCHES}}
    return mixed(node["key"], await interpret.run({"nodes": [watch]}) + value)


async def _watch(node: Node, _value: int) -> int:
    """The other child: waits for the first, of which it knows the id."""
    other = node["of"]
    if node["how"] == "select" and await perdure.select_workflow(other) != other:
        return -1
    if node["how"] == "join":
        await perdure.join_workflows(other)
    try:
        return mixed(node["key"], await perdure.handle(other, interpret).result())
    except perdure.AwaitedWorkflowCancelled:
        if node["timeout"] is None:
            # The whole family is cancelled, and this one in a moment.
            await asyncio.get_running_loop().create_future()
        return mixed(node["key"], 1)


async def _sole(node: Node, value: int) -> int:
    sole = interpret.options(id=f"{perdure.current().run_id}.{node['key']}", reuse="reject")
    child = await sole.start({"nodes": node["nodes"]})
    try:
        await sole.start({"nodes": node["nodes"]})
    except perdure.WorkflowIdInUse:
        return mixed(node["key"], await child.result() + value)
    return -1


async def _again(node: Node, value: int) -> int:
    mine = interpret.options(id=f"{perdure.current().run_id}.{node['key']}")
    for each in (mine, mine.options(reuse="rerun-failed")):
        child = await each.start({"nodes": node["nodes"]})
        try:
            await child.result()
        except ValueError:
            value = mixed(node["key"], value)
    return value


async def _quiet(node: Node, value: int) -> int:
    key = f"{perdure.current().run_id}/{node['key']}"
    handle = await perdure.debounce(interpret.prepare({"nodes": node["nodes"]}), key, node["seconds"])
    return mixed(node["key"], await handle.result() + value)


async def _trap(node: Node, value: int) -> int:
    key = node["key"]
    match node["how"]:
        case "sleep":
            await perdure.sleep(node["ms"] / 1000)
        case "recv":
            await perdure.recv(key)
        case "event":
            await perdure.get_event(perdure.current().run_id, key)
        case "work":
            await plain(key, value, node["ms"])
        case _:
            await stubborn(key)
    return -1


async def _keyed(node: Node, value: int) -> int:
    said = [node[name] for name in ("how", "shared", "fails", "ms")]
    results = await asyncio.gather(*(keyed(node["key"], value, *said) for _ in range(node["callers"])))
    return mixed(node["key"], sum(results))


async def _talk(node: Node, value: int) -> int:
    topic = node["key"]
    me = perdure.current().run_id
    listen = {"kind": "listen", "to": me, **{key: node[key] for key in LISTENS}}
    child = await interpret.start({"nodes": [listen]})
    for number in range(node["messages"]):
        await perdure.send(child.id, value + number, topic, key=f"{topic}-{number}")
    if node["twice"]:
        await perdure.send(child.id, value, topic, key=f"{topic}-0")
    event = await perdure.get_event(child.id, topic)
    answer = await perdure.recv(topic)
    return mixed(topic, event + answer) if answer == await child.result() else -1


async def _listen(node: Node, _value: int) -> int:
    """The child of a talk."""
    topic = node["key"]
    total = 0
    for _ in range(node["messages"]):
        total = mixed("heard", total + await perdure.recv(topic))
    if await perdure.recv(topic, timeout=0) is not None:
        return -1
    await perdure.set_event(topic, mixed("event", total))
    value = await _sequence(node["nodes"], total)
    await perdure.send(node["to"], value, topic)
    return value


async def _streamed(node: Node, value: int) -> int:
    key = node["key"]
    speak = {"kind": "speak", "first": value, **{name: node[name] for name in SPEAKS}}
    child = await interpret.start({"nodes": [speak]})
    total = 0
    for offset in range(node["values"]):
        total = mixed("read", total + await perdure.read_stream(child.id, key, offset, type=int))
    try:
        await perdure.read_stream(child.id, key, node["values"])
    except perdure.StreamTimeout:
        return mixed(key, total + await child.result())
    return -1


async def _speak(node: Node, _value: int) -> int:
    """The child of a stream."""
    value = node["first"]
    for number in range(node["values"]):
        await perdure.write_stream(node["key"], mixed("said", value + number))
    value = await _sequence(node["nodes"], value)
    if node["closes"]:
        await perdure.close_stream(node["key"])
    return value


async def _raise(node: Node, _value: int) -> int:
    raise KeyError(node["key"])


CALLS: dict[str, Callable[[Node, int], perdure.PendingCall[int]]] = {"step": _step, "retried": _retried}
"""Nodes that are one call, built at once."""

INTERPRETERS: dict[str, Callable[[Node, int], Awaitable[int]]] = {
    "step": _step,
    "retried": _retried,
    "parked": lambda node, value: parked(node["key"], value, node["fails"]),
    "caught": _caught,
    "gather": _gather,
    "sequence": lambda node, value: _sequence(node["nodes"], value),
    "sleep": _sleep,
    "race": races.race,
    "chance": races.chance,
    "told": races.told,
    "changed": races.changed,
    "transaction": lambda node, value: in_a_transaction(node["key"], value, node["fails"], node["once"]),
    "keyed": _keyed,
    "children": _children,
    "handled": _handled,
    "late": _late,
    "watched": _watched,
    "watch": _watch,
    "sole": _sole,
    "again": _again,
    **managed.INTERPRETERS,
    **sagas.INTERPRETERS,
    "quiet": _quiet,
    "family": _children,
    "trap": _trap,
    "talk": _talk,
    "listen": _listen,
    "streamed": _streamed,
    "speak": _speak,
    "blocking": lambda node, value: blocking(node["key"], value, node["ms"]),
    "fail": lambda node, _value: failing(node["key"]),
    "raise": _raise,
    "attempts": lambda node, value: attempted(node["key"], value, node["until"]),
    "bad": lambda node, _value: bad(node["key"], node["how"]),
    "poison": lambda node, _value: poison(node["key"]),
}
"""Where a node is a single step its call is built, and takes its index, before anything is awaited."""
