"""Random programs, as data: what a run is to do, made from a seed. Pure.

A program is a list of nodes; each kind of node has a maker here, an interpreter in `flows` and an expectation in
`model`. Whoever teaches the engine a new durable call adds one of each. Program number `n` of a seed is always the
same, however fast the machine is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from zlib import crc32

Node = dict[str, Any]
"""`kind`, `key` (unique in its program) and what that kind needs; JSON."""

LEASE = 2.0
"""Seconds of a worker's lease: long enough for a busy machine, short enough to be lost many times a minute."""

SLOW_MS = int(LEASE * 1000 * 1.4)
"""A body that outlives a lease."""

BLOCKED_MS = int(LEASE * 1000 * 0.6)
"""A loop that does not turn for most of a lease. For longer than that it would lose every lease, and never end."""

ENDS_IN_TROUBLE = 0.14
"""Share of programs that do not simply succeed."""

HAS_A_TIMEOUT = 0.08
"""Share of programs with a timeout: most of them are then where only it can end them."""

IS_A_FAMILY = 0.04
"""Share of programs that are cancelled while their children, and theirs, wait for what never comes."""

FOREVER = 3600.0
"""Seconds that are longer than any session."""

RUNS_A_SHARED_KEY = 12
"""Runs, one after the other, that share the idempotency keys which are not of one run alone: under way together."""

BY_CLIENT = ("", "start", "twice", "run")
"""How a run is started: its row written as by an operator, or by a client (see `clients`)."""


@dataclass(frozen=True)
class Outside:
    """What somebody asks of the run while it is under way, so many seconds after it was made."""

    cancel_after: float | None = None
    immediate: bool = False
    with_children: bool = False
    """The cancel waits for the run's first child."""
    suspend_after: float | None = None
    resume_after: float = 0.0


@dataclass(frozen=True)
class Program:
    """One run: its nodes, how often the body may be tried, what else is asked of it."""

    nodes: list[Node]
    max_run_attempts: int = 1
    max_recoveries: int = 100_000
    outside: Outside = field(default_factory=Outside)
    timeout: float | None = None
    """Seconds from its first claim."""
    by: str = ""
    """One of `BY_CLIENT`."""

    @property
    def input(self) -> dict[str, Any]:
        """Argument of the workflow."""
        return {"nodes": self.nodes}


def mixed(key: str, value: int) -> int:
    """What a step returns: depends on its place in the program and on everything before it."""
    return crc32(f"{key}:{value}".encode())


REPEATABLE = ("step", "retried", "parked", "sleep", "chance", "changed")
"""Kinds that may be done once more: what they leave outside of their run is not counted."""

SPEAKS = ("key", "values", "closes", "nodes")
"""What the child that writes to a stream knows of it."""

LISTENS = ("key", "messages", "nodes")
"""What the child of a talk knows of it."""

WATCHES = ("key", "how", "timeout")
"""What the child that waits for another one knows of that, beside its id."""


def heard(value: int, messages: int) -> int:
    """What a child makes of the messages that it is sent: `value`, the next number, and so on, in this order."""
    total = 0
    for number in range(messages):
        total = mixed("heard", total + value + number)
    return total


def program(seed: int, number: int) -> Program:
    """Program `number` of this seed."""
    return _Maker(Random(f"{seed}:program:{number}"), number // RUNS_A_SHARED_KEY).program()


class _Maker:
    def __init__(self, random: Random, group: int) -> None:
        self._random = random
        self._group = group
        self._keys = 0

    def program(self) -> Program:
        random = self._random
        nodes = [self.node(depth=0) for _ in range(random.randint(1, 6))]
        attempts = recoveries = 0
        draw = random.random()
        if draw < HAS_A_TIMEOUT:
            return self._timed(nodes)
        if draw < HAS_A_TIMEOUT + IS_A_FAMILY:
            return self._doomed(nodes)
        if draw > 1 - ENDS_IN_TROUBLE:
            kind = random.choices(("fail", "raise", "attempts", "bad", "poison"), (3, 2, 4, 4, 1))[0]
            if kind == "poison":
                # Nobody may be left waiting for a run that is parked for good.
                nodes = self._flat()
            last = self.make(kind)
            # What follows is never reached where the program fails there.
            nodes = [*nodes, last, self.make("step")]
            if kind == "attempts":
                attempts = random.randint(last["until"] - 1, last["until"] + 1)
            elif kind == "poison":
                recoveries = random.randint(1, 2)
        outside = Outside() if recoveries else self._outside()
        return Program(
            nodes,
            max_run_attempts=max(1, attempts),
            max_recoveries=recoveries or 100_000,
            outside=outside,
            by="" if attempts or recoveries else self._by(outside, (60, 20, 8, 12)),
        )

    def _timed(self, nodes: list[Node]) -> Program:
        """One with a timeout that must end it, may end it, or is far away."""
        random = self._random
        match random.choices(("must", "may", "far"), (7, 3, 1))[0]:
            case "must":
                nodes = [*nodes[:3], self.make(random.choices(("trap", "family"), (5, 1))[0])]
                timeout = random.uniform(0.2, 3.5)
            case "may":
                timeout = random.uniform(0.05, 2.5)
            case _:
                timeout = FOREVER
        outside = self._outside()
        return Program(nodes, outside=outside, timeout=round(timeout, 3), by=self._by(outside, (25, 35, 15, 25)))

    def _doomed(self, nodes: list[Node]) -> Program:
        random = self._random
        after = round(random.choice((0.0, random.uniform(0, 0.5), random.uniform(0, 3))), 3)
        outside = Outside(cancel_after=after, immediate=random.random() < 0.5, with_children=True)
        return Program([*nodes[:2], self.make("family")], outside=outside, by=self._by(outside, (60, 20, 8, 12)))

    def _by(self, outside: Outside, weights: tuple[int, ...]) -> str:
        """Clients suspend nothing."""
        chosen = self._random.choices(BY_CLIENT, weights)[0]
        return "" if outside.suspend_after is not None else chosen

    def node(self, depth: int) -> Node:
        kinds = KINDS if depth < 2 else FLAT
        return self.make(self._random.choices(list(kinds), list(kinds.values()))[0], depth)

    def make(self, kind: str, depth: int = 0) -> Node:
        self._keys += 1
        return {"kind": kind, "key": f"{kind[0]}{self._keys}", **MAKERS[kind](self, depth)}

    def ms(self) -> int:
        """Milliseconds of a body: mostly none, seldom more than a lease."""
        random = self._random
        lengths = (0, random.randint(1, 40), random.randint(50, 400), random.randint(400, 1200), SLOW_MS)
        return random.choices(lengths, (50, 32, 14, 3, 0.5))[0]

    def _outside(self) -> Outside:
        random = self._random
        at = round(random.choice((0.0, random.uniform(0, 0.3), random.uniform(0, 3))), 3)
        match random.choices(("nothing", "cancel", "suspend", "both"), (88, 6, 5, 1))[0]:
            case "cancel":
                return Outside(cancel_after=at, immediate=random.random() < 0.5)
            case "suspend":
                return Outside(suspend_after=at, resume_after=round(at + random.uniform(0.1, 3), 3))
            case "both":
                # Suspended for good, but a cancel ends it all the same (rule R10).
                return Outside(suspend_after=at, resume_after=0.0, cancel_after=round(at + 1, 3), immediate=False)
            case _:
                return Outside()

    # -- one maker for each kind

    def step(self, _depth: int) -> Node:
        return {"ms": self.ms(), "sync": self._random.random() < 0.15}

    def retried(self, _depth: int) -> Node:
        return {"ms": self.ms() // 4, "fails": self._random.randint(1, 3)}

    def parked(self, _depth: int) -> Node:
        return {"fails": self._random.randint(1, 2)}

    def caught(self, depth: int) -> Node:
        return {"fallback": [self.node(depth + 1) for _ in range(self._random.randint(0, 2))]}

    def gather(self, _depth: int) -> Node:
        kinds = self._random.choices(("step", "retried"), (4, 1), k=self._random.randint(2, 6))
        return {"steps": [self.make(kind) for kind in kinds]}

    def sequence(self, depth: int) -> Node:
        return {"nodes": [self.node(depth + 1) for _ in range(self._random.randint(1, 4))]}

    def sleep(self, _depth: int) -> Node:
        return {"seconds": self._random.choice((0.0, 0.05, 0.6, 1.6, 3.0))}

    def children(self, _depth: int) -> Node:
        """Runs of their own, started one after the other and waited for together."""
        return {"programs": [self._flat() for _ in range(self._random.randint(1, 3))]}

    def talk(self, _depth: int) -> Node:
        """A child that is told something, publishes something, and answers. `twice`: one message is sent again."""
        return {"messages": self._random.randint(1, 3), "twice": self._random.random() < 0.3, "nodes": self._flat()}

    def streamed(self, _depth: int) -> Node:
        """A child that writes to a stream, which its parent reads to the end: its close, or the end of the child."""
        random = self._random
        return {"values": random.randint(1, 4), "closes": random.random() < 0.5, "nodes": self._flat()}

    def race(self, _depth: int) -> Node:
        """A select whose winner is known: the others never end. A body that never ends loses only to a step, as a
        graceful cancel would wait for it while there is no winner yet."""
        random = self._random
        winner = random.choice(("step", "recv", "sleep"))
        losers = ["recv", "event", "sleep", *(["work"] if winner == "step" else [])]
        branches = [winner, *random.sample(losers, random.randint(1, 2))]
        random.shuffle(branches)
        wins = branches.index(winner)
        if branches.count(winner) > 1:
            branches = [each for place, each in enumerate(branches) if each != winner or place == wins]
            wins = branches.index(winner)
            branches = branches if len(branches) > 1 else [*branches, "event"]
        return {"branches": branches, "wins": wins, "ms": self.ms(), "seconds": random.choice((0.0, 0.05, 1.6))}

    def chance(self, _depth: int) -> Node:
        """The time, an id and a random number, which a step is given: at a replay they have to be the same."""
        return {}

    def _flat(self) -> list[Node]:
        kinds = self._random.choices(list(FLAT), list(FLAT.values()), k=self._random.randint(1, 3))
        return [self.make(kind) for kind in kinds]

    def handled(self, depth: int) -> Node:
        """Children of which at least one fails, and a parent that goes on all the same."""
        random = self._random
        programs = [self._flat() for _ in range(random.randint(1, 3))]
        for nodes in programs[: random.randint(1, len(programs))]:
            nodes.append(self.make(random.choice(("fail", "raise"))))
        random.shuffle(programs)
        fallback = [self.node(depth + 1) for _ in range(random.randint(0, 1))]
        return {"programs": programs, "together": random.random() < 0.6, "fallback": fallback}

    def late(self, _depth: int) -> Node:
        """A child whose own timeout ends it; its parent goes on."""
        nodes = [*self._flat()[:1], self.make("trap")]
        return {"nodes": nodes, "timeout": round(self._random.uniform(0.2, 2), 3), "fallback": self._flat()[:1]}

    def watched(self, _depth: int) -> Node:
        """A child, and another one that waits for its end without having started it. `timeout`: what alone ends the
        first, seconds after it has begun; None: it ends well."""
        random = self._random
        how = random.choice(("result", "select", "join"))
        if random.random() < 0.7:
            return {"nodes": self._flat(), "how": how, "timeout": None}
        nodes = [*self._flat()[:1], self.make("trap")]
        return {"nodes": nodes, "how": how, "timeout": round(random.uniform(0.2, 2), 3)}

    def sole(self, _depth: int) -> Node:
        """A child that must be the first of its id, and a second start of it, which is refused."""
        return {"nodes": self._flat()}

    def again(self, _depth: int) -> Node:
        """A child that fails, and is run again by another start of its id."""
        return {"nodes": [*self._flat(), self.make("fail")]}

    def quiet(self, _depth: int) -> Node:
        """A debounced start, which is no child, and whose run is waited for."""
        return {"nodes": self._flat(), "seconds": self._random.choice((0.02, 0.3, 1.6))}

    def trap(self, _depth: int) -> Node:
        """Never over: a sleep, a message, an event, a body, a retry."""
        return {"how": self._random.choice(("sleep", "recv", "event", "work", "retry")), "ms": int(FOREVER * 1000)}

    def family(self, depth: int) -> Node:
        """Children that never end, some with children of their own, beside some that do."""
        random = self._random
        programs = []
        for number in range(random.randint(1, 3)):
            nodes = self._flat()[:2]
            if depth < 2 and random.random() < 0.35:
                nodes.append(self.make("family", depth + 1))
            elif number == 0 or random.random() < 0.7:
                # No body that lasts for ever: a graceful cancel would wait for it.
                how = random.choice(("sleep", "recv", "event", "retry"))
                nodes.append({**self.make("trap"), "how": how})
            programs.append(nodes)
        return {"programs": programs}

    def transaction(self, _depth: int) -> Node:
        """`once`: its row is written under an idempotency key that is part of the transaction."""
        return {"fails": int(self._random.random() < 0.3), "once": self._random.random() < 0.5}

    def keyed(self, _depth: int) -> Node:
        """Steps that do something under one idempotency key. `shared`: with those of other runs."""
        random = self._random
        how = random.choice(("once", "commit_on_success", "remember"))
        shared = f"{how}/{self._group}/{random.randint(0, 1)}" if random.random() < 0.4 else ""
        fails = int(random.random() < 0.3)
        return {"how": how, "callers": random.choice((1, 1, 2, 3)), "shared": shared, "fails": fails, "ms": self.ms()}

    def blocking(self, _depth: int) -> Node:
        return {"ms": self._random.choice((100, BLOCKED_MS))}

    def attempts(self, _depth: int) -> Node:
        return {"until": self._random.randint(2, 3)}

    def bad(self, _depth: int) -> Node:
        return {"how": self._random.choice(("nul", "surrogate", "nan", "huge", "refused", "refused"))}


MAKERS: dict[str, Callable[[_Maker, int], Node]] = {
    "step": _Maker.step,
    "retried": _Maker.retried,
    "parked": _Maker.parked,
    "caught": _Maker.caught,
    "gather": _Maker.gather,
    "sequence": _Maker.sequence,
    "sleep": _Maker.sleep,
    "transaction": _Maker.transaction,
    "keyed": _Maker.keyed,
    "children": _Maker.children,
    "handled": _Maker.handled,
    "late": _Maker.late,
    "watched": _Maker.watched,
    **dict.fromkeys(("sole", "copied"), _Maker.sole),
    **dict.fromkeys(("again", "resumed"), _Maker.again),
    "rewound": lambda maker, _: {"nodes": [maker.make(each) for each in maker._random.choices(REPEATABLE, k=2)]},
    "stopped": lambda maker, _: {"nodes": [*maker._flat()[:1], maker.make("trap")]},
    "deleted": lambda maker, _: {"nodes": [maker.make(maker._random.choice(REPEATABLE)), maker.make("trap")]},
    "undone": lambda maker, _: {"steps": maker._random.randint(1, 3)},
    "taken": lambda maker, _: {"steps": maker._random.randint(0, 3)},
    "quiet": _Maker.quiet,
    "family": _Maker.family,
    "trap": _Maker.trap,
    "talk": _Maker.talk,
    "streamed": _Maker.streamed,
    "race": _Maker.race,
    "chance": _Maker.chance,
    "blocking": _Maker.blocking,
    "attempts": _Maker.attempts,
    "bad": _Maker.bad,
    **dict.fromkeys(("told", "changed", "fail", "raise", "poison"), lambda _maker, _depth: {}),
}

FLAT: dict[str, float] = {
    "step": 60,
    "retried": 8,
    "parked": 3,
    "sleep": 5,
    "chance": 2,
    "told": 3,
    "changed": 3,
    "transaction": 7,
    "keyed": 6,
    "blocking": 0.25,
}
"""Weights of nodes without nodes in them."""

KINDS: dict[str, float] = {
    **FLAT,
    "caught": 6,
    "gather": 10,
    "sequence": 8,
    "children": 4,
    "talk": 4,
    "streamed": 3,
    "race": 6,
    "handled": 3,
    "late": 1.5,
    "quiet": 2,
    **dict.fromkeys(("sole", "again", "resumed", "rewound", "copied", "undone"), 2),
    "taken": 1.5,
    **dict.fromkeys(("stopped", "deleted"), 1.5),
    "watched": 3,
}
