"""The limit that an engine over Postgres works towards: durable rows for the same steps, and nothing else.

    python -m benchmarks.bare_writer URL SLOTS

Runs are claimed in batches; a row is durable before each step's body and one after it, the finish travelling with the
next start; every write is fenced under a lock of the run's row; the writes of all runs are gathered into statements of
a bounded size on a few connections. No replay, retries, leases, waits, errors, payloads: what these cost is what a
real engine loses against it. It is no part of Perdure, and shares no code with it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from dataclasses import dataclass
from typing import Any

import asyncpg

STEPS = 5
OWNER = 1

FLUSH_ROWS = 300
"""A larger statement makes Postgres and this process wait for each other."""

CONNECTIONS = 4

SCHEMA = """
CREATE SCHEMA bare;
CREATE TABLE bare.runs (
    id bigint PRIMARY KEY, status smallint NOT NULL DEFAULT 0, owner integer, fence bigint NOT NULL DEFAULT 0,
    input text NOT NULL, output text, ended_at timestamptz
) WITH (fillfactor = 80);
CREATE INDEX runs_ready ON bare.runs (id) WHERE status = 0;
CREATE TABLE bare.steps (
    run bigint NOT NULL, step integer NOT NULL, phase smallint NOT NULL, payload text,
    at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (run, step, phase)
);
"""
FILL = "INSERT INTO bare.runs (id, input) SELECT n, '5' FROM generate_series(1, $1::integer) n"
ENDED = "SELECT count(*) FROM bare.runs WHERE status = 2"

CLAIM = """
WITH pick AS MATERIALIZED (
    SELECT id FROM bare.runs WHERE status = 0 ORDER BY id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE bare.runs r SET status = 1, owner = $1, fence = r.fence + 1 FROM pick WHERE r.id = pick.id
RETURNING r.id, r.fence
"""
WRITE = """
WITH own AS MATERIALIZED (
    SELECT id, fence FROM bare.runs WHERE id = ANY($2::bigint[]) AND owner = $1 AND status = 1
     ORDER BY id FOR NO KEY UPDATE
), written AS (
    INSERT INTO bare.steps (run, step, phase, payload)
    SELECT r.run, r.step, r.phase, r.payload
      FROM unnest($3::bigint[], $4::bigint[], $5::integer[], $6::smallint[], $7::text[])
           AS r(run, fence, step, phase, payload)
      JOIN own ON own.id = r.run AND own.fence = r.fence
), ended AS (
    UPDATE bare.runs t SET status = 2, output = e.output, ended_at = clock_timestamp()
      FROM unnest($8::bigint[], $9::bigint[], $10::text[]) AS e(run, fence, output)
      JOIN own ON own.id = e.run AND own.fence = e.fence
     WHERE t.id = e.run
)
SELECT id, fence FROM own
"""

STARTED, FINISHED = 0, 1
SESSION = {"enable_seqscan": "off", "jit": "off"}
"""As in the engine's sessions: no plan for the tables as they were when they were empty."""


@dataclass(slots=True)
class Write:
    """What one run wants written before it goes on."""

    run: int
    fence: int
    rows: list[tuple[int, int, str]]
    """Step, phase, payload."""
    output: str | None
    """Not None: the run ends with it."""
    written: asyncio.Future[None]


class Writer:
    """Gathers the writes of all runs, and writes them on several connections."""

    def __init__(self, url: str, slots: int) -> None:
        self._url = url
        self._slots = slots
        self._running = 0
        self._writes: deque[Write] = deque()
        self._written = asyncio.Event()
        self._left = asyncio.Event()

    async def work(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._write(await self._connect()))
            group.create_task(self._claim(await self._connect(), group))

    async def _claim(self, connection: asyncpg.Connection[Any], group: asyncio.TaskGroup) -> None:
        while True:
            free = self._slots - self._running
            for run, fence in await connection.fetch(CLAIM, OWNER, free):
                self._running += 1
                group.create_task(self._run(run, fence))
            self._left.clear()
            while self._slots - self._running <= self._slots // 4:
                await self._left.wait()
                self._left.clear()
            if self._running == 0:
                await asyncio.sleep(0.1)  # all is done

    async def _run(self, run: int, fence: int) -> None:
        finished: list[tuple[int, int, str]] = []
        for step in range(STEPS):
            await self._store(run, fence, [*finished, (step, STARTED, "step")], None)
            finished = [(step, FINISHED, str(await _body(step)))]
        await self._store(run, fence, finished, str(STEPS))
        self._running -= 1
        self._left.set()

    def _store(
        self, run: int, fence: int, rows: list[tuple[int, int, str]], output: str | None
    ) -> asyncio.Future[None]:
        written = asyncio.get_running_loop().create_future()
        self._writes.append(Write(run, fence, rows, output, written))
        self._written.set()
        return written

    async def _write(self, connection: asyncpg.Connection[Any]) -> None:
        while True:
            while not self._writes:
                self._written.clear()
                await self._written.wait()
            await asyncio.sleep(0)  # whoever can go on now adds to this statement
            taken: list[Write] = []
            rows = 0
            while self._writes and rows < FLUSH_ROWS:
                taken.append(self._writes.popleft())
                rows += len(taken[-1].rows)
            if not taken:
                continue
            steps = [(write.run, write.fence, *row) for write in taken for row in write.rows]
            ends = [(write.run, write.fence, write.output) for write in taken if write.output is not None]
            owned = await connection.fetch(
                WRITE, OWNER, [write.run for write in taken], *_columns(steps, 5), *_columns(ends, 3)
            )
            if len(owned) != len(taken):
                raise RuntimeError("runs were lost, and nobody else is here")
            for write in taken:
                write.written.set_result(None)

    async def _connect(self) -> asyncpg.Connection[Any]:
        return await asyncpg.connect(self._url, server_settings=SESSION)


def _columns(rows: list[Any], count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(count)]


async def _body(number: int) -> int:
    return number


if __name__ == "__main__":
    asyncio.run(Writer(sys.argv[1], int(sys.argv[2])).work())
