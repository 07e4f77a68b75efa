"""`make faults FAULT_SECONDS=300 SEED=1`: random programs under faults, counted. The last line is JSON.

The same seed gives the same programs and the same faults in the same order; only timing differs. Exit code 0 only if
nothing was lost, nothing finished ran again, no zombie wrote and nothing is stuck.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from tests.faults.check import Kind
from tests.faults.harness import Outcome, session
from tests.support.postgres import serving


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="for how long there are faults")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with serving() as server:
        outcome = asyncio.run(session(server, options.seed, options.seconds, say=_say))
    print(*lines(outcome, time.monotonic() - began), sep="\n", flush=True)
    return 1 if outcome.problems else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def lines(outcome: Outcome, took: float) -> list[str]:
    """What is said at the end."""
    said = [f"seed {outcome.seed}, {took:.0f} s in all"]
    said += [f"  {name:<32} {times}" for name, times in sorted(outcome.statuses.items())]
    said.append(f"  bodies begun {outcome.bodies}, steps finished {outcome.steps}")
    said += [f"  {name:<32} {times}" for name, times in sorted(outcome.faults.items())]
    said += [f"  {name:<32} {times}" for name, times in sorted(outcome.covered.items())]
    said.append("statements hit: " + ", ".join(f"{name} {times}" for name, times in sorted(outcome.statements.items())))
    if outcome.problems:
        said += [*outcome.story, f"FAILED; again: make faults SEED={outcome.seed} FAULT_SECONDS={outcome.seconds:g}"]
        said += [f"  {problem.kind} {problem.run}: {problem.sentence}" for problem in outcome.problems[:50]]
    counts = {kind.value: outcome.count(kind) for kind in Kind}
    result = {
        "runs": outcome.runs,
        "steps": outcome.steps,
        "faults": dict(sorted(outcome.faults.items())),
        "covered": dict(sorted(outcome.covered.items())),
        **counts,
        "seed": outcome.seed,
        "seconds": outcome.seconds,
    }
    return [*said, json.dumps(result)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
