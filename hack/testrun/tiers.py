"""The tiers in the order in which they run: cheapest first, so that a slip is found in seconds.

A tier is a folder of tests and what must be there while pytest runs. `machine` does the long work (building, starting
a cluster) outside pytest, where its progress is seen; it raises `Impossible` on a machine that cannot do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from testrun import machine


@dataclass(frozen=True)
class Tier:
    """One tier of pytest. `processes` is how many pytest-xdist workers run it: as many as a machine of two cores takes,
    where tests share nothing."""

    name: str
    what: str
    folders: tuple[str, ...]
    processes: int = 1
    machine: Callable[[], AbstractContextManager[None]] = machine.nothing
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


LINT = "lint"

TIERS = (
    Tier("unit", "pure functions, no database", ("tests/unit", "tests/typing"), processes=2),
    Tier("store", "every statement on a real Postgres", ("tests/store",), processes=2, machine=machine.pooler),
    Tier(
        "postgres15",
        "the same on Debian's Postgres 15, without what takes long",
        ("tests/store",),
        processes=2,
        machine=machine.older_postgres,
        # Two minutes on two cores: all that is said in SQL, not the plans at scale and not the embedded server itself.
        arguments=("--ignore=tests/store/test_embedded.py", "-k", "not test_plan and not thousand"),
        environment={"PERDURE_TEST_POSTGRES": "15"},
    ),
    Tier(
        "worker",
        "workers and `perdure dev` on a real Postgres",
        ("tests/worker", "tests/dev"),
        # Half of the time these wait for leases to end and for killed processes.
        processes=4,
        machine=machine.pooler,
    ),
    Tier("protocol", "random programs under faults", ("tests/model", "tests/faults"), processes=2),
    # Mostly waits for what the API server tells; each process has one of its own.
    Tier(
        "reconcile",
        "the operator on a real API server",
        ("tests/reconcile",),
        processes=3,
        machine=machine.control_plane,
    ),
    Tier(
        "chart",
        "the charts: lint, golden files, alerts",
        ("tests/chart",),
        processes=2,
        machine=machine.chart_tools,
    ),
    Tier("cluster", "end to end on a real cluster", ("tests/cluster",), machine=machine.cluster),
)

NAMES = (LINT, *(tier.name for tier in TIERS))
