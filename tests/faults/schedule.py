"""Which fault comes when, to whom: drawn from a seed. Pure; fault number `n` of a seed is always the same.

Statements are taken in turn, so that each of them is hit before, after and late, with one in two left to chance and
the journal's weight in traffic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from tests.faults.programs import LEASE
from tests.faults.proxy import Armed
from tests.faults.wire import statements

ON_A_STATEMENT = {
    "cut_before": 9,
    "cut_after": 10,
    "delay_question": 4,
    "delay_answer": 4,
    "half_close_far": 3,
    "half_close_near": 3,
    "blackhole": 3,
    "commit_late": 9,
    "pause_after": 5,
    "kill_late": 8,
}
"""Weights of faults at one statement of one worker. `kill_late`: the worker is killed and that is proved at once, so
that others go on with its runs, and then its last statement commits."""

ON_A_WORKER = {
    "silence": 4,
    "refuse": 2,
    "kill": 6,
    "kill_proved": 3,
    "stop_past_lease": 4,
    "stop_shortly": 2,
    "drain": 4,
    "false_death": 2,
}
"""Weights of faults that hit a worker as a whole. `false_death`: it is marked dead by mistake while it lives."""

ON_ALL = {"reclaimers": 3, "lock": 4, "restart_postgres": 0.7, "crash_postgres": 0.7}
"""Weights of the others. `reclaimers`: two more of them beside the workers' own; `lock`: somebody holds rows."""

KINDS = {**ON_A_STATEMENT, **ON_A_WORKER, **ON_ALL}

CLIENT = "client_"
"""How the names of faults begin that strike clients."""

ON_CLIENTS = {
    **{kind: weight for kind, weight in ON_A_STATEMENT.items() if kind not in ("pause_after", "kill_late")},
    "silence": 2,
    "refuse": 2,
}
"""Weights of faults on the way of the clients."""

CLIENT_STATEMENTS = ("client_start", "client_start", "client_watch", "client_existing", "run_cancel", "")

CLIENT_GAP_SECONDS = 1.0

CLOCK_OFF = "clock_off"
"""Counted for each start of a worker whose time of day is wrong."""

GAP_SECONDS = 0.7
"""Between two faults, on average: several are under way at any time."""


@dataclass(frozen=True)
class Fault:
    """One fault. `after` seconds after the one before; `seconds` is how long it lasts, or how late it comes."""

    number: int
    kind: str
    after: float
    worker: int
    statement: str
    skip: int
    seconds: float

    def armed(self, latest: float) -> Armed:
        """As it waits for its statement, which comes no later than so many seconds."""
        return Armed(self.kind, self.statement, self.skip, min(self.seconds, latest))


def schedule(seed: int, workers: int) -> Iterator[Fault]:
    """All faults of this seed, without end."""
    for number in count():
        random = Random(f"{seed}:fault:{number}")
        kind = random.choices(list(KINDS), list(KINDS.values()))[0]
        yield Fault(
            number,
            kind,
            round(random.expovariate(1 / GAP_SECONDS), 3),
            random.randrange(workers),
            _statement(random, number, kind),
            random.randrange(6),
            _seconds(random, kind),
        )


def client_schedule(seed: int) -> Iterator[Fault]:
    """All faults of this seed on the way of the clients, without end."""
    for number in count():
        random = Random(f"{seed}:client fault:{number}")
        kind = random.choices(list(ON_CLIENTS), list(ON_CLIENTS.values()))[0]
        after = round(random.expovariate(1 / CLIENT_GAP_SECONDS), 3)
        statement = random.choice(CLIENT_STATEMENTS)
        yield Fault(number, kind, after, 0, statement, random.randrange(3), _seconds(random, kind))


def clock_offset(seed: int, worker: int, start: int) -> float:
    """Seconds by which the clock of this start of this worker is off."""
    return Random(f"{seed}:clock:{worker}:{start}").choice((0.0, 0.0, 0.0, 3600.0, -3600.0))


def _statement(random: Random, number: int, kind: str) -> str:
    if kind in ("pause_after", "kill_late") or random.random() < 0.35:
        return random.choice(("journal_commit", "journal_steps", "journal_next", "journal_done"))
    if random.random() < 0.2:
        return ""
    every = statements()
    return every[number % len(every)]


def _seconds(random: Random, kind: str) -> float:
    shortest, longest = {
        "delay_question": (0.05, 1.5 * LEASE),
        "delay_answer": (0.05, 1.5 * LEASE),
        "commit_late": random.choice(((0.3, 4 * LEASE), (0.3, 4 * LEASE), (0.3, 4 * LEASE), (20.0, 60.0))),
        "kill_late": (1.5 * LEASE, 3 * LEASE),
        "pause_after": (1.2 * LEASE, 2 * LEASE),
        "silence": (0.2, 2 * LEASE),
        "refuse": (0.2, 1.5 * LEASE),
        "kill": (0.0, 1.5),
        "kill_proved": (0.0, 1.5),
        "stop_past_lease": (1.3 * LEASE, 2.5 * LEASE),
        "stop_shortly": (0.1, 0.7 * LEASE),
        "drain": (0.0, 0.5),
        "reclaimers": (1.0, 3.0),
        "lock": (0.2, 2.5),
        "restart_postgres": (0.0, 0.5),
        "crash_postgres": (0.0, 0.5),
    }.get(kind, (0.0, 0.0))
    return round(random.uniform(shortest, longest), 3)
