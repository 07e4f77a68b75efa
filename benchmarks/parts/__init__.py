"""The parts, in the order in which they are taken and shown. Those that are compared with each other come first."""

from benchmarks.part import Part
from benchmarks.parts import bare, claims, cluster, drain, latency, peers, recovery, scale, sleepers

PARTS: tuple[Part, ...] = (
    drain.PART,
    bare.PART,
    latency.PART,
    peers.PART,
    claims.PART,
    sleepers.PART,
    recovery.PART,
    scale.PART,
    cluster.PART,
)

BY_NAME = {part.name: part for part in PARTS}
