"""What the decorators keep of a function's types. Not run: mypy (test_public_api.py) and pyright (`make lint`) read it
in strict mode, and each line that is to be refused has to be refused by both."""

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from random import Random
from typing import Any, assert_type
from uuid import UUID

import asyncpg
import perdure
from perdure import testing
from perdure.api import Step, Workflow
from perdure.codecs import Compression, Encryption, Offload


class Lines:
    name = "lines"

    def serialize(self, value: Any) -> str:
        return str(value)

    def deserialize(self, text: str) -> Any:
        return text


class Shout:
    name = "shout"
    blocking = True

    def encode(self, text: str) -> str | None:
        return text.upper()

    def decode(self, text: str) -> str:
        return text.lower()


perdure.register_serializer(Lines())
perdure.register_codec(Shout())
perdure.register_serializer(Shout())  # type: ignore[arg-type]
perdure.register_codec(Lines())  # type: ignore[arg-type]
perdure.Client("postgresql://x", serializer=Lines(), codecs=[Shout()])
perdure.Instance("postgresql://x", serializer=Lines(), codecs=(Shout(),))


@perdure.workflow(serialization=perdure.Serialization.PORTABLE)
async def portable(words: list[str]) -> str:
    await perdure.send("x", 1, serialization="native")
    await perdure.set_event("x", 1, serialization=perdure.Serialization.DEFAULT)
    await perdure.write_stream("x", 1, serialization="portable")
    await perdure.send("x", 1, serialization="pickle")  # type: ignore[arg-type]
    return await portable.options(serialization="native").run(words)


perdure.workflow(serialization="pickle")  # type: ignore[call-overload]


@perdure.step
async def charge(cents: int, *, currency: str = "EUR") -> str:
    return f"{cents} {currency}"


@perdure.step
def count(names: list[str]) -> int:
    return len(names)


@perdure.step(name="ship", max_attempts=3, timeout=1.5, should_retry=lambda error: isinstance(error, OSError))
async def ship(order: str) -> None: ...


@perdure.step(max_attempts=2)
def weigh(order: str) -> float:
    return 1.0


@perdure.step
async def give_back(charged: str, cents: int, *, why: str = "") -> None: ...


@perdure.transaction
async def move(connection: asyncpg.Connection, cents: int, *, to: str = "x") -> list[str]:
    return []


@perdure.transaction(isolation="serializable", max_attempts=2, timeout=3)
async def note(connection: asyncpg.Connection) -> None: ...


async def fetch() -> dict[str, int]:
    return {}


async def keys(pool: asyncpg.Pool) -> None:
    assert_type(perdure.idempotency.key("a", 1), str)
    assert_type(await perdure.idempotency.once("k", fetch), perdure.idempotency.Outcome[dict[str, int]])
    assert_type((await perdure.idempotency.commit_on_success("k", fetch, pool=pool)).value, dict[str, int] | None)
    assert_type(await perdure.idempotency.remember("k", fetch, ttl=1.5), dict[str, int])
    await perdure.idempotency.remember("k", count)  # type: ignore[arg-type]


@perdure.workflow
async def order(order_id: str) -> dict[str, int]:
    assert_type(charge(1), perdure.PendingStep[str])
    assert_type(await charge(1, currency="USD"), str)
    assert_type(charge(1).undo(ship), perdure.PendingStep[str])
    assert_type(await charge(1).undo(give_back, 5, why="late"), str)
    charge(1).undo(count)  # type: ignore[arg-type]
    charge(1).undo(ship, 5)  # type: ignore[call-arg]
    charge(1).undo(give_back, "5")  # type: ignore[arg-type]
    assert_type(await count(["a"]), int)
    assert_type(await ship("x"), None)
    assert_type(await weigh("x"), float)
    assert_type(await move(1, to="y"), list[str])
    assert_type(await note(), None)
    assert_type(await asyncio.gather(charge(1), count([])), tuple[str, int])
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(count([])), asyncio.Task[int])
    assert_type(count.function([]), Any)
    assert_type(perdure.current(), perdure.RunInfo)
    assert_type(perdure.current().step, perdure.StepInfo | None)
    assert_type(charge(1).step_id, int | None)
    return {}


@perdure.workflow(name="named")
async def named() -> int:
    return 1


async def outside(client: perdure.Client) -> None:
    handle = assert_type(await client.start(order, "x"), perdure.Handle[dict[str, int]])
    assert_type(await client.start(order.options(id="x", timeout=1.5), order_id="x"), perdure.Handle[dict[str, int]])
    assert_type(await handle.result(timeout=1), dict[str, int])
    assert_type(await handle.output(), dict[str, int])
    assert_type(await handle.output_raw(), str | None)
    assert_type(await handle.wait(), perdure.RunStatus)
    assert_type(await handle.cancel(), perdure.RunStatus)
    assert_type(await client.run(named), int)
    assert_type(client.handle("x", named), perdure.Handle[int])
    assert_type(client.handle("x"), perdure.Handle[Any])
    assert_type(handle.workflow_id, str)
    assert_type(await client.select_workflow("x", handle, timeout=1), str)
    assert_type(await client.join_workflows("x", timeout=1), None)
    assert_type(await client.join_workflows(handle, client.handle("x", named)), tuple[dict[str, int], int])
    assert_type(await client.join_workflows(*[handle, handle]), tuple[dict[str, int], ...])
    assert_type(await client.start_many(named.prepare() for _ in range(3)), list[perdure.Handle[int]])
    assert_type(await client.start_by_name("named"), perdure.Handle[Any])
    await client.send("x", {"any": "value"}, topic="t", key="k", serialization="portable")
    assert_type(await client.get_event("x", "name", timeout=1), Any)
    assert_type(await client.get_event("x", "name", type=list[int]), list[int] | None)
    async for value in client.read_stream("x", "key", 3, timeout=1):
        assert_type(value, Any)
    async for number in client.read_stream("x", "key", type=int):
        assert_type(number, int)
    assert_type(await client.debounce(named.prepare(), key="k", delay=5), perdure.Handle[int])
    nightly = perdure.Schedule("nightly", "0 2 * * *", order.prepare("x"), overlap="skip", jitter=5)
    await client.schedules.create(nightly)
    await client.schedules.apply([nightly, perdure.Schedule("other", "* * * * *", "by name", [1])], owner="o")
    assert_type(await client.schedules.get("nightly"), perdure.ScheduleInfo)
    assert_type(await client.schedules.list(), tuple[perdure.ScheduleInfo, ...])
    assert_type(await client.schedules.trigger("nightly"), perdure.Handle[Any])
    assert_type(await client.schedules.delete("nightly"), bool)
    queue = assert_type(await client.queues.apply("q", concurrency=3, rate=perdure.RateLimit(5, 60)), perdure.Queue)
    assert_type(queue.limits, perdure.QueueLimits)
    assert_type(await client.queues.list(), list[perdure.Queue])
    assert_type(await client.queues.delete("q"), None)
    await client.queues.apply("q", concurrency="3")  # type: ignore[arg-type]
    await client.queues.apply("q", rate=5)  # type: ignore[arg-type]
    perdure.Schedule("nightly", "0 2 * * *", order)  # type: ignore[arg-type]
    perdure.Schedule("nightly", "0 2 * * *", order.prepare("x"), overlap="forbid")  # type: ignore[arg-type]
    await client.debounce(named, "k", 5)  # type: ignore[arg-type]
    await client.start(order)  # type: ignore[call-arg]
    await client.start(order, 1)  # type: ignore[arg-type]
    await client.run(named, "x")  # type: ignore[call-arg]
    order.prepare(1)  # type: ignore[arg-type]
    order.options(priority="high")  # type: ignore[arg-type]
    same = order.options(
        id="x", reuse="reject", timeout=perdure.NO_TIMEOUT, deduplication_id="d", attributes={"tenant": [1]}
    )
    assert_type(await client.start(same, "x"), perdure.Handle[dict[str, int]])
    order.options(reuse=perdure.ReusePolicy.RERUN_FAILED, on_duplicate="return-existing")
    order.options(reuse="terminate")  # type: ignore[arg-type]
    order.options(on_duplicate="rerun-failed")  # type: ignore[arg-type]
    order.options(timeout="none")  # type: ignore[arg-type]
    assert_type(order.name, str)
    assert_type(order.qualified_name, str)


async def in_a_transaction(client: perdure.Client, connection: asyncpg.Connection) -> None:
    assert_type(await client.start_in(connection, order, "x"), perdure.Handle[dict[str, int]])
    await client.start_in(connection, order, 1)  # type: ignore[arg-type]


app = perdure.Instance(slots=2, run_attempts=1)
perdure.Instance(slots="many")  # type: ignore[arg-type]


@app.workflow
async def own(n: int) -> str:
    return str(n)


@app.workflow(name="other", timeout=60, max_run_attempts=1)
async def other() -> None: ...


@app.step(max_attempts=2)
async def own_step(n: int) -> float:
    return n


async def launched() -> None:
    async with app as same:
        assert_type(same, perdure.Instance)
        assert_type(await same.run(own, 1), str)
        assert_type(await (await own.start(1)).result(), str)
        assert_type(await own.run(1), str)
        assert_type(await other.run(), None)
        assert_type(await own_step(1), float)
    assert_type(await perdure.launch(slots=2), perdure.Instance)
    await perdure.shutdown()


async def inside() -> None:
    child = assert_type(await order.start("x"), perdure.ChildHandle[dict[str, int]])
    assert_type(await child.result(), dict[str, int])
    assert_type(child, perdure.RunHandle[dict[str, int]])
    assert_type(await child.status(), perdure.RunStatus)
    assert_type(child.workflow_id, str)
    assert_type(await order.run("x"), dict[str, int])
    assert_type(perdure.handle("x", named), perdure.RunHandle[int])
    assert_type(perdure.handle("x"), perdure.RunHandle[Any])
    assert_type(await perdure.select_workflow("x", child), str)
    assert_type(await perdure.join_workflows("x", "y"), None)
    assert_type(await perdure.join_workflows(child, perdure.handle("x", named)), tuple[dict[str, int], int])
    assert_type(await perdure.join_workflows(*[child, child]), tuple[dict[str, int], ...])
    assert_type(await named.options(queue="q").start(), perdure.ChildHandle[int])
    assert_type(await perdure.sleep(1.5), None)
    assert_type(await perdure.send(child.id, 1, "topic", key="k"), None)
    assert_type(await perdure.recv("topic", timeout=1), Any)
    assert_type(await perdure.recv("topic", type=dict[str, int]), dict[str, int] | None)
    assert_type(await perdure.recv("topic", type=int | str), Any)
    assert_type(await perdure.set_event("name", 1), None)
    assert_type(await perdure.get_event("x", "name"), Any)
    assert_type(await perdure.get_event("x", "name", type=bytes), bytes | None)
    assert_type(await perdure.write_stream("key", 1), None)
    assert_type(await perdure.close_stream("key"), None)
    assert_type(await perdure.read_stream("x", "key", 3, timeout=1), Any)
    assert_type(await perdure.read_stream("x", "key", type=bytes), bytes)
    await perdure.read_stream("x", "key", "0")  # type: ignore[call-overload]
    assert_type(perdure.debounce(named.prepare(), "k", 5), perdure.PendingStart[perdure.RunHandle[int]])
    assert_type(await perdure.debounce(named.prepare(), "k", 5, cap=60), perdure.RunHandle[int])
    assert_type(perdure.scheduled_tick(), perdure.ScheduledTick | None)
    assert_type(await perdure.now(), datetime)
    assert_type(perdure.uuid4(), UUID)
    assert_type(perdure.patch("two-warehouses"), perdure.PendingCall[bool])
    assert_type(perdure.VersionPolicy("auto"), perdure.VersionPolicy)
    assert_type(await perdure.deprecate_patch("two-warehouses"), bool)
    assert_type(perdure.random(), Random)
    assert_type(await perdure.gather(charge(1)), tuple[str])
    assert_type(await perdure.gather(charge(1), count([]), perdure.sleep(1)), tuple[str, int, None])
    assert_type(await perdure.gather(*(charge(n) for n in range(3))), tuple[str, ...])
    assert_type(await perdure.gather(charge(1), charge(2), return_exceptions=True), tuple[str | Exception, ...])
    assert_type(await perdure.select(charge(1), count([])), perdure.Selected[str | int])
    assert_type((await perdure.select(charge(1), charge(2))).value, str)
    assert_type((await perdure.select(charge(1), perdure.sleep(1))).index, int)
    assert_type(await perdure.select(paid=charge(1), late=perdure.sleep(1)), perdure.Selected[Any])
    await perdure.gather(1)  # type: ignore[call-overload]
    await perdure.select(charge(1), 1)  # type: ignore[call-overload]
    await order.start(1)  # type: ignore[arg-type]
    await named.start("x")  # type: ignore[call-arg]
    await order.run(1)  # type: ignore[arg-type]
    perdure.select_workflow(1)  # type: ignore[arg-type]
    perdure.join_workflows("x", child)  # type: ignore[call-overload]
    await perdure.sleep("1")  # type: ignore[arg-type]


async def steps_at_the_call(parcel: str) -> None:
    assert_type(
        charge.options(max_attempts=3, timeout=None, interval=timedelta(seconds=1))(1), perdure.PendingStep[str]
    )
    assert_type(await move.options(preemptible=True)(1, to="y"), list[str])
    assert_type(charge(1).map_error(lambda error: ValueError(str(error))), perdure.PendingStep[str])
    assert_type(perdure.sleep(1).map_error(lambda error: error), perdure.PendingCall[None])
    assert_type(perdure.run_step("weigh", len, parcel), perdure.PendingStep[int])
    assert_type(await perdure.run_step("fetch", fetch, max_attempts=2), dict[str, int])
    assert_type(await perdure.run_step("closure", lambda: f"{parcel}!", preemptible=False), str)
    assert_type(perdure.run_sync(perdure.send, "x", 1, topic="t"), None)
    info = perdure.current().step
    if info is not None:
        assert_type(info.cancelled, perdure.Cancellation)
        assert_type(info.cancelled.is_set(), bool)
    perdure.run_step("weigh", len, parcel, attempts=2)  # type: ignore[call-overload]
    charge.options(max_attempts="3")  # type: ignore[arg-type]
    charge(1).map_error(lambda error: "text")  # type: ignore[arg-type, return-value]
    perdure.run_sync(perdure.sleep)  # type: ignore[call-arg]


async def managed(client: perdure.Client, handle: perdure.Handle[str]) -> None:
    assert_type(await client.resume("x", named), perdure.Handle[int])
    assert_type(await client.resume("x"), perdure.Handle[Any])
    assert_type(await client.fork("x", perdure.Cut.LAST_STEP, named, id="y"), perdure.Handle[int])
    assert_type(await client.fork("x", workflow=named), perdure.Handle[int])
    assert_type(await client.fork("x"), perdure.Handle[Any])
    assert_type(await client.rewind("x", "charge", named), perdure.Handle[int])
    assert_type(await handle.resume(), perdure.Handle[str])
    assert_type(await handle.fork(3, children={"a": "b"}), perdure.Handle[str])
    assert_type(await handle.cancel(cascade=False), perdure.RunStatus)
    assert_type(await client.cancel_many(["x"]), dict[str, perdure.RunStatus])
    assert_type(await client.list_workflows(workflow=[named, "x"], status=perdure.RunStatus.FAILED), perdure.RunPage)
    assert_type(await client.get_workflow("x"), perdure.RunDetails)
    assert_type(await client.export_history("x"), perdure.RunHistory)
    assert_type(await handle.steps(), tuple[perdure.StepDetails, ...])
    await client.list_workflows(colour="red")  # type: ignore[call-arg]
    await client.list_workflows(queue=3)  # type: ignore[arg-type]


async def manages(handle: perdure.RunHandle[str]) -> None:
    assert_type(perdure.resume("x", named), perdure.PendingStart[perdure.RunHandle[int]])
    assert_type(perdure.fork("x", 3, named), perdure.PendingStart[perdure.RunHandle[int]])
    assert_type(perdure.fork("x"), perdure.PendingStart[perdure.RunHandle[Any]])
    assert_type(await perdure.rewind("x", perdure.Cut.step(2), named), perdure.RunHandle[int])
    assert_type(await handle.resume(), perdure.RunHandle[str])
    assert_type(await handle.fork(id="y"), perdure.RunHandle[str])
    assert_type(perdure.cancel("x", cascade=False), perdure.PendingCall[perdure.RunStatus])
    assert_type(await perdure.list_workflows(queue=["a", "b"]), perdure.RunPage)
    assert_type(await handle.details(payloads=False), perdure.RunDetails)
    perdure.rewind("x")  # type: ignore[call-overload]


def read_refused(cents: int) -> "Refused":
    return Refused(cents)


@perdure.error("refused", encode=lambda error: error.cents, decode=read_refused, former_names=["x.Refused"])
class Refused(Exception):
    def __init__(self, cents: int) -> None:
        self.cents = cents


assert_type(Refused(1), Refused)
codecs: list[perdure.Codec] = [
    Compression(at_least=10),
    Encryption({"k": b"k" * 32, "old": "text"}, active="k"),
    Offload("memory://typed", at_least=10, anon=True),
]
assert_type(Encryption.new_key(), str)
Encryption({"k": 1})  # type: ignore[dict-item]
assert_type(perdure.Portable("N", "m", 1, {}).code, int | str | None)
perdure.error("refused", encode=1)  # type: ignore[arg-type]


async def kit(perdure_env: testing.Environment, url: str) -> None:
    async with testing.Environment(url, always_replay=True, run_attempts=1) as env:
        assert_type(env, testing.Environment)
        assert_type(await env.run(named), int)
        assert_type(await env.skip_until_idle(), timedelta)
        history = assert_type(await env.history(await env.start(named)), testing.History)
        assert_type(history.assert_step(charge, output=1, error=ValueError), testing.RecordedCall)
    await perdure_env.skip(3.0)
    perdure_env.fail(charge, ValueError, attempt=2)
    perdure_env.crash("charge", "done")
    perdure_env.crash(charge, "nowhere")  # type: ignore[arg-type]
    perdure_env.fail(charge, "no")  # type: ignore[arg-type]


body: Coroutine[Any, Any, dict[str, int]] = assert_type(order("x"), Coroutine[Any, Any, dict[str, int]])
steps: Step[[str], float] = weigh
flows: Workflow[[], int] = named

charge("1")  # type: ignore[arg-type]
charge()  # type: ignore[call-arg]
charge(1, "EUR")  # type: ignore[call-arg]
ship(order=1)  # type: ignore[arg-type]
move("1")  # type: ignore[arg-type]
move(object(), 1)  # type: ignore[call-arg, arg-type]
perdure.transaction(isolation="none")  # type: ignore[call-overload]
perdure.step(max_attempts="3")  # type: ignore[call-overload]
perdure.step(max_interval=timedelta(hours=2), timeout=timedelta(seconds=3))
perdure.workflow(lambda: 1)  # type: ignore[arg-type, return-value]


async def fixed() -> int:
    return 1


assert_type(perdure.workflow(name="fixed", version_policy="auto")(fixed), Workflow[[], int])
perdure.workflow(name="fixed", version_policy="newest")(fixed)  # type: ignore[call-overload]
