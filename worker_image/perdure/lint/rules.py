"""PURE. The rules: a code each, what is wrong, and what to write instead. Nothing here looks at any source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """`code` never changes its meaning. `says` completes a sentence that begins with what was found."""

    code: str
    name: str
    says: str


CLOCK = Rule("PDL01", "clock", "differs at a replay; use perdure.now(), or let a step look at the clock")
CHANCE = Rule("PDL02", "chance", "differs at a replay; use perdure.uuid4() or perdure.random(), or a step")
SLEEP = Rule("PDL03", "sleep", "is not recorded, and keeps its slot; use perdure.sleep()")
RACE = Rule(
    "PDL04",
    "race",
    "may go another way at a replay; use perdure.select(), the timeout of a step, or that of recv and get_event",
)
SPAWN = Rule(
    "PDL05",
    "spawn",
    "begins its calls in an order that nobody fixes; build durable calls and give them to perdure.gather()",
)
GATHER = Rule(
    "PDL06",
    "gather",
    "raises the failure that is first in time, another one at a replay; use perdure.gather(), which goes by the order "
    "of the calls",
)
SWALLOW = Rule("PDL07", "swallow", "also catches the signals that end a body; catch Exception")
CLEANUP = Rule(
    "PDL08",
    "cleanup",
    "awaits while the body may be on its way out, where durable calls do nothing; do it after the try, or in an except "
    "Exception",
)
UNORDERED = Rule("PDL09", "unordered", "gives its elements in another order in another process; use sorted() or a list")
CLIENT = Rule("PDL10", "client", "is not recorded, a replay does it again; use the durable calls of perdure, or a step")
OUTSIDE = Rule("PDL11", "outside", "reaches outside and is not recorded; do it in a step")
GROUP = Rule(
    "PDL12",
    "group",
    "cancels its other tasks when one fails, which a replay may not; let the error go straight out of the body, or use "
    "perdure.gather()",
)
ALONE = Rule("PDL13", "alone", "takes its place in the run when it is awaited; await it on its own, before or after")

RULES = (
    CLOCK,
    CHANCE,
    SLEEP,
    RACE,
    SPAWN,
    GATHER,
    SWALLOW,
    CLEANUP,
    UNORDERED,
    CLIENT,
    OUTSIDE,
    GROUP,
    ALONE,
)

BY_CALL: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "time.time",
            "time.time_ns",
            "time.monotonic",
            "time.monotonic_ns",
            "time.perf_counter",
            "time.perf_counter_ns",
            "time.localtime",
            "time.gmtime",
            "time.ctime",
            "datetime.datetime.now",
            "datetime.datetime.utcnow",
            "datetime.datetime.today",
            "datetime.date.today",
            "asyncio.get_running_loop().time",
            "asyncio.get_event_loop().time",
        ),
        CLOCK,
    ),
    **dict.fromkeys(("uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7", "os.urandom", "os.getpid"), CHANCE),
    **dict.fromkeys(("asyncio.sleep", "time.sleep", "anyio.sleep", "trio.sleep"), SLEEP),
    **dict.fromkeys(
        (
            "asyncio.wait_for",
            "asyncio.timeout",
            "asyncio.timeout_at",
            "asyncio.wait",
            "asyncio.as_completed",
            "async_timeout.timeout",
            "anyio.move_on_after",
            "anyio.fail_after",
        ),
        RACE,
    ),
    **dict.fromkeys(
        (
            "asyncio.create_task",
            "asyncio.ensure_future",
            "asyncio.get_running_loop().create_task",
            "asyncio.get_event_loop().create_task",
            "anyio.create_task_group",
        ),
        SPAWN,
    ),
    **dict.fromkeys(("perdure.Client", "perdure.client.Client"), CLIENT),
    **dict.fromkeys(
        (
            "open",
            "input",
            "os.getenv",
            "os.listdir",
            "asyncio.to_thread",
            "asyncio.open_connection",
            "asyncio.create_subprocess_exec",
            "asyncio.create_subprocess_shell",
            "asyncio.get_running_loop().run_in_executor",
            "asyncio.get_event_loop().run_in_executor",
        ),
        OUTSIDE,
    ),
}
"""Rules that forbid a function by its full name."""

BY_MODULE: dict[str, Rule] = {
    **dict.fromkeys(("random", "secrets", "numpy.random"), CHANCE),
    **dict.fromkeys(
        (
            "aiofiles",
            "aiohttp",
            "asyncpg",
            "boto3",
            "httpx",
            "psycopg",
            "redis",
            "requests",
            "shutil",
            "smtplib",
            "socket",
            "sqlalchemy",
            "sqlite3",
            "subprocess",
            "urllib.request",
            "urllib3",
        ),
        OUTSIDE,
    ),
}
"""Rules that forbid every function of a module."""

SEEDED = frozenset({"random.Random"})
"""What `BY_MODULE` forbids unless it is given an argument: the generator of a seed gives the same each time."""

CAUGHT_TOO_MUCH = frozenset(
    {
        "BaseException",
        "BaseExceptionGroup",
        "asyncio.CancelledError",
        "perdure.ControlSignal",
        "perdure.errors.ControlSignal",
    }
)

AWAITED_ALONE = frozenset({"perdure.patch", "perdure.deprecate_patch", "perdure.debounce"})

TOGETHER = frozenset({"perdure.gather", "perdure.select", "asyncio.gather"})

WORKFLOW = "workflow"
"""Name of the decorator whose functions are bodies, in whatever it is an attribute of."""

LEAVES = frozenset({"step", "transaction"})
"""Names of decorators whose functions are no part of a body."""
