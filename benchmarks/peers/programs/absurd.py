"""Absurd: `absurd.py URL worker CLIENTS | enqueue COUNT | latency COUNT`. A client has one connection and one run."""

import os
import sys
import threading
import time
from typing import Any

import psycopg
from absurd_sdk import Absurd

URL, MODE, NUMBER = sys.argv[1], sys.argv[2], int(sys.argv[3])
POLL_SECONDS = float(os.environ.get("POLL_SECONDS", "0.25"))
WATCH_SECONDS = 0.001
STEPS = 5
STATE = "SELECT state FROM absurd.t_default WHERE task_id = %s"


def client() -> None:
    app = Absurd(URL)

    @app.register_task(name="chain")
    def chain(params: Any, ctx: Any) -> Any:
        for number in range(params["steps"]):
            ctx.step(f"step {number}", lambda: None)
        return params

    app.start_worker(concurrency=1, poll_interval=POLL_SECONDS)


def worker() -> None:
    for _ in range(NUMBER):
        threading.Thread(target=client, daemon=True).start()
    print("READY", flush=True)
    threading.Event().wait()


def enqueue() -> None:
    app = Absurd(URL)
    for _ in range(NUMBER):
        app.spawn("chain", {"steps": STEPS}, queue="default")
    print("READY", flush=True)


def latency() -> None:
    app = Absurd(URL)
    print("READY", flush=True)
    with psycopg.connect(URL, autocommit=True) as connection:
        for _ in range(NUMBER):
            started = time.perf_counter()
            run = app.spawn("chain", {"steps": STEPS}, queue="default")
            while (row := connection.execute(STATE, (run["task_id"],)).fetchone()) is None or row[0] != "completed":
                time.sleep(WATCH_SECONDS)
            print((time.perf_counter() - started) * 1000, flush=True)


{"worker": worker, "enqueue": enqueue, "latency": latency}[MODE]()
sys.stdout.flush()
os._exit(0)
