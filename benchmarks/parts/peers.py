"""The peers: how they drain the same runs, and how long one of them takes, on the same Postgres where they use one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from benchmarks import drains, figures
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
    """What goes wrong with one peer is said in its line, and the others are measured."""
    for peer in PEERS:
        try:
            await asyncio.to_thread(peer.install)
        except Unavailable as reason:
            yield Row(peer.name, "", note=str(reason))
            continue
        for way in peer.drains:
            yield await _row(bench, peer, f"drain, {way}", _drain(bench, peer, way), f"durable: {peer.durable}")
        for way in peer.latencies:
            yield await _row(bench, peer, f"one run, {way}", _latency(bench, peer, way))


async def _row(
    bench: Bench, peer: Peer, case: str, measuring: Coroutine[Any, Any, dict[str, float]], note: str = ""
) -> Row:
    try:
        return Row(peer.name, case, await measuring, note)
    except Exception as error:
        bench.note(f"{peer.name}, {case}, failed: {type(error).__name__}: {error}")
        return Row(peer.name, case, note=f"failed: {error}")


async def _drain(bench: Bench, peer: Peer, way: str) -> dict[str, float]:
    async with peer.drain(bench, way) as drain:
        return await drains.watch(bench, drain, bench.size.peer_seconds)


async def _latency(bench: Bench, peer: Peer, way: str) -> dict[str, float]:
    return figures.spread(await peer.latency(bench, way, bench.size.peer_latency_runs), "ms")


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
