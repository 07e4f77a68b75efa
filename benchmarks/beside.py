"""One run at a time, started in the process of its worker: `python -m benchmarks.beside URL COUNT SLOTS`.

Prints the milliseconds of each run, warm-up left out. The event loop is that of `python -m perdure.worker`.
"""

from __future__ import annotations

import asyncio
import sys

from perdure import Client
from perdure.api import default_registry
from perdure.telemetry import logs
from perdure.worker.main import loop_factory
from perdure.worker.settings import WorkerSettings
from perdure.worker.worker import Worker

from benchmarks import backlog
from benchmarks.flows import chain
from benchmarks.host import NAMESPACE, POOL
from benchmarks.timing import one_by_one


async def main(url: str, count: int, slots: int) -> None:
    settings = WorkerSettings(namespace=NAMESPACE, pool=POOL, slots=slots)
    worker = Worker(settings, default_registry, database_url=url)
    await worker.start()
    await worker.wait_until_working()
    async with Client(url, NAMESPACE, POOL, worker=worker.resident) as client:
        for milliseconds in await one_by_one(lambda: client.run(chain, backlog.STEPS), count):
            print(milliseconds)
    await worker.stop()


if __name__ == "__main__":
    logs.configure("WARNING")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
