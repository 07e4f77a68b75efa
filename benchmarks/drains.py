"""How a backlog is drained: looked at now and then, whoever drains it, and the steady part is what counts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from localcluster.console import Failure, say

from benchmarks import figures, machine
from benchmarks.backlog import STEPS
from benchmarks.figures import Sample
from benchmarks.host import Bench

SAMPLES = 25
"""Of one watch. Counting the ended runs takes Postgres some milliseconds: about a hundredth of its time."""

FIRST_SECONDS = 60.0
"""Longest wait for the first run to end: a peer may poll once a second, and its first runs are slow."""

TELL_SECONDS = 10.0
"""Between two signs of life."""


@dataclass(frozen=True)
class Drain:
    """Somebody who is at work."""

    total: int
    """Runs to be done."""
    done: Callable[[], Awaitable[int]]
    """How many have ended."""
    processes: Mapping[str, Sequence[int]]
    """Whose processor time and memory count, besides Postgres."""


async def watch(bench: Bench, drain: Drain, seconds: float, *, steps: int = STEPS) -> dict[str, float]:
    """Rates and costs of a drain, until all is done or `seconds` have gone by since the first run's end; and how much
    of the machine was used by what has no part in it."""
    others = machine.Others(os.getpid())
    interval = seconds / SAMPLES
    samples = [await _sample(bench, drain)]
    before = samples[0].done
    deadline = time.monotonic() + FIRST_SECONDS
    told = time.monotonic()
    working = False
    while samples[-1].done < drain.total and time.monotonic() < deadline:
        await asyncio.sleep(interval)
        samples.append(await _sample(bench, drain))
        if samples[-1].at - told >= TELL_SECONDS:
            told = samples[-1].at
            say(f"{samples[-1].done:,} runs have ended")
        if not working and samples[-1].done > before:
            working = True
            deadline = time.monotonic() + seconds
    try:
        return {**figures.rates(samples, drain.total, steps), "others_percent": others.percent()}
    except ValueError as error:
        raise Failure(str(error)) from None


async def _sample(bench: Bench, drain: Drain) -> Sample:
    done = await drain.done()
    at = time.monotonic()
    processor, memory = machine.usage({**drain.processes, "postgres": [bench.server.pid]})
    return Sample(at, done, processor, {name: memory[name] for name in drain.processes})
