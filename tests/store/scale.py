"""A database as it looks after a busy month: what the plans of all statements are asserted on."""

from typing import Any

import asyncpg

MESSAGES, EVENTS = 100_000, 20_000
FINISHED, READY, WORKERS, RUNNING_EACH, WAITING, MANY, STEPS_EACH = 100_000, 100_000, 50, 4, 2_000, 400, 3
SCHEDULES = 20_000
SLEEPING, KEYS = 100_000, 20_000

SEED = f"""
INSERT INTO perdure.workers (id, namespace, pool, pod, pod_uid, version, queues, manifest, slots, state, lease_until,
                             ended_at)
SELECT 'w' || lpad(n::text, 4, '0'), 'ns', 'default', 'pod-' || n, 'uid-' || n, 'v' || (n % 2 + 1), '{{default}}',
       '{{workflow:x,step:y}}', 4, CASE WHEN n <= {WORKERS} THEN 10 ELSE 40 END, now() + interval '1 hour',
       CASE WHEN n > {WORKERS} THEN now() - interval '2 hours' END
  FROM generate_series(1, {WORKERS} * 4) n;

-- Ended: most behind resources, a few of which are gone.
INSERT INTO perdure.workflows (id, namespace, name, workflow, requires, pool, queue, priority, version, status, fence,
                               started_at, finished_at, deadline_at, deleted, reported_revision, run_at, created_at,
                               parent_id, parent_step, parent_told, cascades, cancel_mode)
SELECT 'f' || lpad(n::text, 6, '0'), 'ns', 'run-' || n, 'x', '{{workflow:x}}', 'default', 'default', 100, 'v1',
       CASE WHEN n % 10 = 0 THEN 60 ELSE 50 END, 2, now(), now(), now() + interval '1 day', n % 1000 = 0, 2097152,
       now() - interval '1 day', now() - interval '1 day', 'p' || lpad((n % {WAITING} + 1)::text, 6, '0'), 1,
       n % 500 <> 0, n % 1000 = 1, CASE WHEN n % 100 = 1 THEN 'Graceful' END
  FROM generate_series(1, {FINISHED}) n;

-- Ended without a resource, over seventy days, with children of runs that go on among the oldest.
INSERT INTO perdure.workflows (id, namespace, workflow, requires, pool, queue, priority, version, status, fence,
                               started_at, finished_at, parent_id)
SELECT 'e' || lpad(n::text, 6, '0'), 'ns', 'x', '{{workflow:x}}', 'default', 'default', 100, 'v1', 50, 0,
       now(), now() - n * interval '1 minute', CASE WHEN n % 3 = 0 THEN 'o000' || lpad((n % 200)::text, 3, '0') END
  FROM generate_series(1, {FINISHED}) n;

-- Ready: not started yet, bound to either version, for a pool of its own, and foremost what no worker can run.
INSERT INTO perdure.workflows (id, namespace, name, workflow, requires, pool, queue, priority, version, status, fence,
                               started_at, deadline_at, waiting_for, waiting_since, run_at, suspended, status_due_at)
SELECT 'r' || lpad(n::text, 6, '0'), 'ns', 'ready-' || n, 'x',
       CASE WHEN n % 7 = 6 THEN '{{workflow:nobody-has-it}}' WHEN n % 7 = 5 THEN '{{workflow:x,step:y}}'
            ELSE '{{workflow:x}}' END::text[],
       CASE WHEN n % 50 = 0 THEN 'other' ELSE 'default' END, CASE WHEN n % 40 = 1 THEN 'slow' ELSE 'default' END,
       CASE WHEN n % 7 = 6 THEN 1 ELSE 100 + n % 3 END, CASE WHEN n % 10 = 0 THEN 'v1' WHEN n % 2 = 0 THEN 'v2' END, 10,
       CASE WHEN n % 2 = 0 THEN 2 ELSE 0 END, CASE WHEN n % 2 = 0 THEN now() END,
       CASE WHEN n % 4 = 0 THEN now() + interval '1 day' END,
       CASE WHEN n % 3 = 0 THEN '{{"kind": "NoFreeSlot"}}'::jsonb END, now() - n * interval '1 second',
       now() - n * interval '1 second', n % 200 = 3, CASE WHEN n % 100 = 0 THEN now() - interval '1 minute' END
  FROM generate_series(1, {READY}) n;

-- A worker with very many slots.
INSERT INTO perdure.workflows (id, namespace, name, workflow, requires, pool, queue, priority, version, status, fence,
                               worker_id, started_at, status_due_at)
SELECT 'q' || lpad(n::text, 6, '0'), 'ns', 'owned-' || n, 'x', '{{workflow:x}}', 'default', 'default', 100, 'v1', 30, 1,
       'w0050', now(), now()
  FROM generate_series(1, {MANY}) n;

-- Owned, waiting, delayed; some of them due.
INSERT INTO perdure.workflows (id, namespace, name, workflow, requires, pool, queue, priority, version, status, fence,
                               worker_id, started_at, deadline_at, status_due_at)
SELECT 'o' || lpad(n::text, 6, '0'), 'ns', 'owned-' || n, 'x', '{{workflow:x}}', 'default', 'default', 100, 'v1', 30, 1,
       'w' || lpad((n % {WORKERS} + 1)::text, 4, '0'), now(), now() + interval '1 day', now()
  FROM generate_series(1, {WORKERS} * {RUNNING_EACH}) n;
INSERT INTO perdure.workflows (id, namespace, name, workflow, requires, pool, queue, priority, version, status, fence,
                               started_at, deadline_at, wake_at, waiting_for, waiting_since, reopen)
SELECT 'p' || lpad(n::text, 6, '0'), 'ns', 'parked-' || n, 'x', '{{workflow:x}}', 'default', 'default', 100, 'v1',
       CASE WHEN n % 4 = 0 THEN 20 ELSE 40 END, 2, now(), now() + (n - 500) * interval '1 minute',
       now() + (n - 500) * interval '1 minute', '{{"kind": "RetryBackoff"}}', now(), n % 40 = 0
  FROM generate_series(1, {WAITING}) n;

-- Versions of two hundred releases, each with a hundred workflows.
INSERT INTO perdure.worker_versions (namespace, pool, version, workflow, source_hash, policy, registered_at)
SELECT 'ns', 'default', 'v' || v, CASE w WHEN 1 THEN 'x' ELSE 'x' || w END, 'same', 'auto',
       now() - (200 - v) * interval '2 days'
  FROM generate_series(1, 200) v, generate_series(1, 100) w;

-- Queues with limits; most queues have none.
INSERT INTO perdure.queues (namespace, name, concurrency, worker_concurrency, partition_concurrency)
SELECT 'ns', 'q' || n, 10, 2, 1 FROM generate_series(1, 50) n;

-- Inboxes of the owned runs: mostly read, hardly any unannounced. Events, and one that very many wait for.
INSERT INTO perdure.messages (workflow_id, topic, key, value, sent_at, announced, consumed_by)
SELECT 'o' || lpad((n % {WORKERS} * {RUNNING_EACH} + 1)::text, 6, '0'), 't' || n % 3, 'k' || n, '1',
       now() - interval '1 minute', n % 1000 <> 0, CASE WHEN n % 100 <> 0 THEN n END
  FROM generate_series(1, {MESSAGES}) n;
INSERT INTO perdure.events (workflow_id, name, value, fence, seq, set_at, announced)
SELECT 'f' || lpad(n::text, 6, '0'), 'done', '1', 1, 1, now() - interval '1 minute', n % 100 <> 0
  FROM generate_series(1, {EVENTS}) n;
INSERT INTO perdure.event_waits (run_id, name, workflow_id, step_index)
SELECT CASE WHEN n % 2 = 0 THEN 'f000001' ELSE 'f' || lpad(n::text, 6, '0') END, 'done', 's' || lpad(n::text, 6, '0'), 0
  FROM generate_series(1, {EVENTS}) n;

-- Waits for runs: for one that goes on by very many, and for many that have ended.
INSERT INTO perdure.run_waits (run_id, workflow_id, fence, seq)
SELECT CASE WHEN n % 2 = 0 THEN 'r000001' ELSE 'f' || lpad(n::text, 6, '0') END, 's' || lpad(n::text, 6, '0'), 1, 1
  FROM generate_series(1, {EVENTS}) n;

-- Streams with three values each, few of them untold, and one that very many wait for.
INSERT INTO perdure.streams (workflow_id, key, length, untold_since)
SELECT 'f' || lpad(n::text, 6, '0'), 's', 3, CASE WHEN n % 100 = 0 THEN now() - interval '1 minute' END
  FROM generate_series(1, {EVENTS}) n;
INSERT INTO perdure.stream_values (workflow_id, key, "offset", value, step_index)
SELECT 'f' || lpad(n::text, 6, '0'), 's', i, '1', i FROM generate_series(1, {EVENTS}) n, generate_series(0, 2) i;
INSERT INTO perdure.stream_waits (run_id, key, workflow_id, step_index, "offset")
SELECT CASE WHEN n % 2 = 0 THEN 'f000001' ELSE 'f' || lpad(n::text, 6, '0') END, 's', 's' || lpad(n::text, 6, '0'), 0, 3
  FROM generate_series(1, {EVENTS}) n;

-- Some runs of the first worker that undo their steps: half of them are about to begin.
INSERT INTO perdure.workflows (id, namespace, workflow, requires, pool, queue, priority, version, status, fence,
                               worker_id, started_at, undo, undo_at, cascades)
SELECT 'u' || lpad(n::text, 6, '0'), 'ns', 'x', '{{workflow:x}}', 'default', 'default', 100, 'v1', 30, 1, 'w0001',
       now(), CASE WHEN n % 2 = 0 THEN 3 ELSE 2 END, CASE WHEN n % 2 = 0 THEN 3 END, n % 4 = 0
  FROM generate_series(1, 4) n;
INSERT INTO perdure.undos (workflow_id, step_index, name, input)
SELECT CASE WHEN n % 3 = 0 THEN 'f' ELSE 'u' END || lpad((n / 3 + 1)::text, 6, '0'), n % 3, 'back', '[null]'
  FROM generate_series(1, {EVENTS}) n;
INSERT INTO perdure.workflow_steps (workflow_id, step_index, name, status, fence, seq, started_fence, started_seq,
                                    input, output, finished_at)
SELECT 'u' || lpad(n::text, 6, '0'), 3, 'perdure.undo', 30, 1, 20, 1, 20, '""', '[2, 1]', now()
  FROM generate_series(2, 4, 2) n;

-- Asleep, in a pool of their own that has nothing ready; one in five hundred is due.
INSERT INTO perdure.workflows (id, namespace, name, workflow, requires, pool, queue, priority, version, status, fence,
                               started_at, wake_at, waiting_for, waiting_since, parent_id, parent_step)
SELECT 's' || lpad(n::text, 6, '0'), 'ns', 'asleep-' || n, 'x', '{{workflow:x}}', 'sleepy', 'default', 100, 'v1', 40, 0,
       now(), now() + CASE WHEN n % 500 = 0 THEN -n ELSE n END * interval '1 second', '{{"kind": "Sleep"}}', now(),
       'f' || lpad(n::text, 6, '0'), 2
  FROM generate_series(1, {SLEEPING}) n;

-- Keys that are remembered for ever, for an hour, or have expired, and some that are held.
INSERT INTO perdure.idempotency_keys (scope, key, state, token, expires_at)
SELECT 'ns', 'k' || lpad(n::text, 6, '0'), CASE WHEN n % 100 = 1 THEN 10 ELSE 20 END, 't',
       now() + CASE n % 10 WHEN 1 THEN interval '-1 minute' WHEN 2 THEN interval '1 hour' END
  FROM generate_series(1, {KEYS}) n;

-- Schedules: some are due, some wait for a run that has not ended, some are paused. And debounced keys, old ones too.
INSERT INTO perdure.schedules (namespace, name, cron, time_zone, overlap, catch_up, catch_up_window, jitter, workflow,
                               requires, input, pool, queue, priority, partition_key, paused, next_at, queued_tick)
SELECT 'ns', 's' || lpad(n::text, 6, '0'), '0 * * * *', 'UTC', 'skip', 'latest', '1 hour', '0', 'x', 'workflow:x', '[]',
       'default', 'default', 100, '', n % 50 = 0, now() + (n - 200) * interval '1 second',
       CASE WHEN n % 100 = 1 THEN now() END
  FROM generate_series(1, {SCHEDULES}) n;
UPDATE perdure.workflows SET schedule = 's' || substr(id, 2) WHERE id LIKE 'p00%1';
INSERT INTO perdure.debounces (namespace, workflow, key, run_id, due_at)
SELECT 'ns', 'x', 'k' || lpad(n::text, 6, '0'), 'p' || lpad((n % {WAITING} + 1)::text, 6, '0'),
       now() + (n - 500) * interval '1 minute'
  FROM generate_series(1, {SCHEDULES}) n;

INSERT INTO perdure.workflow_payloads (workflow_id, input, output)
SELECT id, '{{"order": 1}}', CASE WHEN status = 50 THEN '"done"' END FROM perdure.workflows;
INSERT INTO perdure.workflow_steps (workflow_id, step_index, name, status, fence, seq, started_fence, started_seq,
                                    input, output, finished_at)
SELECT w.id, i, 'step', CASE WHEN w.status IN (20, 60) AND i = 2 THEN 40 ELSE 30 END, 1, i * 2 + 2, 1, i * 2 + 1,
       '[]', '"ok"', now()
  FROM perdure.workflows w, generate_series(0, {STEPS_EACH - 1}) i
 WHERE w.fence > 0 AND (w.status <> 10 OR w.id LIKE '%0');
"""


INDEXES = """
SELECT format('DROP INDEX perdure.%I', i.indexname) AS drop, i.indexdef AS create
  FROM pg_indexes i
 WHERE i.schemaname = 'perdure' AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conname = i.indexname)
"""


async def seed(url: str) -> None:
    """Fill a migrated database: about 300,000 runs and 400,000 steps. Indexes come last, in half the time."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(url)
    try:
        await connection.execute("SET synchronous_commit = off; SET maintenance_work_mem = '128MB'")
        indexes = await connection.fetch(INDEXES)
        for index in indexes:
            await connection.execute(index["drop"])
        await connection.execute(SEED)
        for index in indexes:
            await connection.execute(index["create"])
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()
