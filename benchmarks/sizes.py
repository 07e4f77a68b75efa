"""How much of everything is measured: the full run for docs/benchmarks.md, a quick look, and a smoke test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """One size. Seconds are those of the measured work; filling the tables and starting processes come on top."""

    name: str
    rounds: int
    """Of the parts that are compared with each other: the medians of the rounds are shown, with their range."""
    peer_rounds: int
    idle_seconds: float
    """Longest wait for an idle machine before something is measured; 0 = none."""

    drain_seconds: float
    drain_runs: Mapping[int, int]
    """Backlog by the number of slots: enough for twice the rates seen."""
    bare_runs: int
    commits: int
    latency_runs: int
    gap_steps: int

    claim_ready: int
    claim_finished: int
    claims: int
    horizon_seconds: float
    horizon_runs: int

    sleepers: int
    sleep_seconds: float
    woken: int

    lease: float
    lease_kills: int
    proof_kills: int
    restarts: int

    workers: Sequence[int]
    scale_seconds: float
    scale_runs: int
    payload_kib: Sequence[int]
    payload_runs: Sequence[int]
    running: int

    peer_seconds: float
    peer_latency_runs: int


FULL = Size(
    name="full",
    rounds=3,
    peer_rounds=2,
    idle_seconds=30.0,
    drain_seconds=10.0,
    drain_runs={4: 10_000, 64: 40_000, 1000: 60_000},
    bare_runs=120_000,
    commits=1_000,
    latency_runs=200,
    gap_steps=400,
    claim_ready=1_000_000,
    claim_finished=10_000_000,
    claims=60,
    horizon_seconds=60.0,
    horizon_runs=250_000,
    sleepers=100_000,
    sleep_seconds=20.0,
    woken=10_000,
    lease=2.0,
    lease_kills=31,
    proof_kills=31,
    restarts=5,
    workers=(1, 10, 50),
    scale_seconds=8.0,
    scale_runs=40_000,
    payload_kib=(1, 10, 100),
    payload_runs=(20_000, 10_000, 1_500),
    running=1000,
    peer_seconds=20.0,
    peer_latency_runs=50,
)

QUICK = Size(
    name="quick",
    rounds=1,
    peer_rounds=1,
    idle_seconds=4.0,
    drain_seconds=4.0,
    drain_runs={4: 5_000, 64: 15_000, 1000: 25_000},
    bare_runs=50_000,
    commits=400,
    latency_runs=100,
    gap_steps=200,
    claim_ready=100_000,
    claim_finished=1_000_000,
    claims=30,
    horizon_seconds=12.0,
    horizon_runs=50_000,
    sleepers=20_000,
    sleep_seconds=5.0,
    woken=5_000,
    lease=1.0,
    lease_kills=5,
    proof_kills=5,
    restarts=1,
    workers=(1, 10),
    scale_seconds=4.0,
    scale_runs=15_000,
    payload_kib=(1, 100),
    payload_runs=(8_000, 600),
    running=1000,
    peer_seconds=8.0,
    peer_latency_runs=20,
)

SMOKE = Size(
    name="smoke",
    rounds=1,
    peer_rounds=1,
    idle_seconds=0.0,
    drain_seconds=1.0,
    drain_runs={16: 200},
    bare_runs=500,
    commits=20,
    latency_runs=5,
    gap_steps=10,
    claim_ready=1_000,
    claim_finished=2_000,
    claims=3,
    horizon_seconds=1.0,
    horizon_runs=200,
    sleepers=200,
    sleep_seconds=0.5,
    woken=50,
    lease=1.0,
    lease_kills=1,
    proof_kills=1,
    restarts=1,
    workers=(1, 2),
    scale_seconds=1.0,
    scale_runs=100,
    payload_kib=(1,),
    payload_runs=(50,),
    running=20,
    peer_seconds=2.0,
    peer_latency_runs=3,
)

SIZES = {size.name: size for size in (FULL, QUICK, SMOKE)}
