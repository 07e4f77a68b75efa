"""The peers: how they drain the same runs, and how long one of them takes, on the same Postgres where they use one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from localcluster.console import Failure

from benchmarks import drains, numbers
from benchmarks.host import Bench
from benchmarks.part import Column, Part, Rounds
from benchmarks.parts.drain import COLUMNS
from benchmarks.peers.absurd import Absurd
from benchmarks.peers.dbos import DbosPython, DbosRust
from benchmarks.peers.install import Unavailable
from benchmarks.peers.peer import Peer
from benchmarks.peers.restate import Restate
from benchmarks.peers.temporal import Temporal
from benchmarks.results import Row

PEERS: tuple[Peer, ...] = (DbosPython(), DbosRust(), Absurd(), Restate(), Temporal())
DBOS_PYTHON = PEERS[0].name


async def measure(bench: Bench) -> AsyncIterator[Row]:
    for peer in PEERS:
        try:
            await asyncio.to_thread(peer.install)
        except Unavailable as reason:
            yield Row(peer.name, "", note=str(reason))
            continue
        for way in peer.drains:
            yield await _drain(bench, peer, way)
        for way in peer.latencies:
            yield await _latency(bench, peer, way)


async def _drain(bench: Bench, peer: Peer, way: str) -> Row:
    case = f"drain, {way}"
    try:
        async with peer.drain(bench, way) as drain:
            found = await drains.watch(bench, drain, bench.size.peer_seconds)
    except Failure as failure:
        return Row(peer.name, case, note=str(failure))
    return Row(peer.name, case, found, f"durable: {peer.durable}")


async def _latency(bench: Bench, peer: Peer, way: str) -> Row:
    case = f"one run, {way}"
    try:
        found = await peer.latency(bench, way, bench.size.peer_latency_runs)
    except Failure as failure:
        return Row(peer.name, case, note=str(failure))
    return Row(peer.name, case, numbers.spread(found, "ms"))


PART = Part(
    "peers",
    "Peers, on the same machine and Postgres",
    "The same 5-step runs, as each peer's own documentation has them, from its registry at the version named, with "
    "its defaults where they decide what is durable, and the concurrency that suits it best here. Runs started "
    "directly are started by the process that runs them, which is part of what is measured; a backlog is stored "
    "before. Nobody who knows these peers well has tuned them. All share two cores: engines that use many gain more "
    "from a larger machine.",
    (*COLUMNS, Column("p50_ms", "p50 ms"), Column("p99_ms", "p99 ms")),
    measure,
    Rounds.PEERS,
    quick=False,
)
