"""DBOS Python: `dbos_python.py URL worker CONCURRENCY | enqueue COUNT | direct THREADS | latency COUNT`."""

import itertools
import os
import sys
import threading
import time

from dbos import DBOS, DBOSClient, DBOSConfig

URL, MODE, NUMBER = sys.argv[1], sys.argv[2], int(sys.argv[3])
QUEUE, VERSION = "bench", "1"
POLL_SECONDS = 0.1
PAUSE_SECONDS = 0.02
STEPS = 5


@DBOS.step()
def noop(number: int) -> int:
    return number


@DBOS.workflow()
def chain(steps: int) -> int:
    for number in range(steps):
        noop(number)
    return steps


def launch() -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": URL,
        "log_level": "ERROR",
        "application_version": VERSION,
        "executor_id": "bench",
    }
    DBOS(config=config)
    DBOS.launch()


def worker() -> None:
    launch()
    DBOS.register_queue(QUEUE, worker_concurrency=NUMBER, polling_interval_sec=POLL_SECONDS)
    print("READY", flush=True)
    threading.Event().wait()


def enqueue() -> None:
    client = DBOSClient(system_database_url=URL)
    for _ in range(NUMBER):
        client.enqueue({"workflow_name": "chain", "queue_name": QUEUE, "app_version": VERSION}, STEPS)
    print("READY", flush=True)


def direct() -> None:
    launch()

    def start() -> None:
        for _ in itertools.count():
            DBOS.start_workflow(chain, STEPS).get_result()

    threads = [threading.Thread(target=start, daemon=True) for _ in range(NUMBER)]
    for thread in threads:
        thread.start()
    print("READY", flush=True)
    threading.Event().wait()


def latency() -> None:
    launch()
    print("READY", flush=True)
    for _ in range(NUMBER):
        started = time.perf_counter()
        DBOS.start_workflow(chain, STEPS).get_result()
        print((time.perf_counter() - started) * 1000, flush=True)
        time.sleep(PAUSE_SECONDS)


{"worker": worker, "enqueue": enqueue, "direct": direct, "latency": latency}[MODE]()
sys.stdout.flush()
os._exit(0)
