"""Temporal: `temporal.py ADDRESS worker QUEUE | enqueue QUEUE KIND COUNT | count QUEUE | latency QUEUE KIND COUNT`.

KIND is `activities` or `local`. `count` answers each line of its input with the number of completed workflows.
"""

import asyncio
import sys
import time
import uuid
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

STEPS = 5
AT_ONCE = 50
TIMEOUT = timedelta(seconds=60)
PAUSE_SECONDS = 0.02


@activity.defn
async def noop() -> None:
    return None


@workflow.defn
class Activities:
    @workflow.run
    async def run(self, steps: int) -> int:
        for _ in range(steps):
            await workflow.execute_activity(noop, start_to_close_timeout=TIMEOUT)
        return steps


@workflow.defn
class Local:
    @workflow.run
    async def run(self, steps: int) -> int:
        for _ in range(steps):
            await workflow.execute_local_activity(noop, start_to_close_timeout=TIMEOUT)
        return steps


KINDS: dict[str, Any] = {"activities": Activities, "local": Local}


async def worker(client: Client, queue: str) -> None:
    made = Worker(client, task_queue=queue, workflows=[Activities, Local], activities=[noop])
    print("READY", flush=True)
    await made.run()


async def start(client: Client, queue: str, kind: str) -> Any:
    return await client.start_workflow(KINDS[kind].run, STEPS, id=str(uuid.uuid4()), task_queue=queue)


async def enqueue(client: Client, queue: str, kind: str, count: str) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with limit:
            await start(client, queue, kind)

    await asyncio.gather(*(one() for _ in range(int(count))))
    print("READY", flush=True)


async def count(client: Client, queue: str) -> None:
    print("READY", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        found = await client.count_workflows(f"TaskQueue = '{queue}' AND ExecutionStatus = 'Completed'")
        print(found.count, flush=True)


async def latency(client: Client, queue: str, kind: str, count: str) -> None:
    print("READY", flush=True)
    for _ in range(int(count)):
        started = time.perf_counter()
        handle = await start(client, queue, kind)
        await handle.result()
        print((time.perf_counter() - started) * 1000, flush=True)
        await asyncio.sleep(PAUSE_SECONDS)


async def main(address: str, mode: str, *arguments: str) -> None:
    modes: dict[str, Any] = {"worker": worker, "enqueue": enqueue, "count": count, "latency": latency}
    await modes[mode](await Client.connect(address), *arguments)


if __name__ == "__main__":  # the sandbox of workflows imports this file again
    asyncio.run(main(*sys.argv[1:]))
