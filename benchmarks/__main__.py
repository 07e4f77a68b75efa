"""`make bench PARTS="local cluster"`: take the measures, print them, write them down."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from localcluster.console import Failure, Impossible, say

from benchmarks import cluster, local
from benchmarks.report import RESULTS, Measure, table, write

PARTS = ("local", "cluster")


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{' or '.join(PARTS)}; both by default")
    parts = parser.parse_args().parts or PARTS
    found = asyncio.run(_take(parts))
    print(f"\n{table(found)}\n")
    write(found)
    print(f"written to {RESULTS}")
    return 0


async def _take(parts: Sequence[str]) -> list[Measure]:
    found = []
    if "local" in parts:
        async for measure in local.measures():
            say(_line(measure))
            found.append(measure)
    if "cluster" in parts:
        try:
            async for measure in cluster.measures():
                say(_line(measure))
                found.append(measure)
        except Impossible as reason:
            found += [Measure(name, None, "", f"no cluster: {reason}") for name in cluster.NAMES]
        except Failure as failure:
            found.append(Measure("cluster", None, "", f"failed: {failure}"))
    return found


def _line(measure: Measure) -> str:
    return f"{measure.name}: {measure.value:.3g} {measure.unit}" if measure.value is not None else measure.name


raise SystemExit(main())
