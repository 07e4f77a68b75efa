-- Purpose: create a run that code asks for as already taken by the worker of the same process, unless its id is taken:
-- one commit instead of two, and no way through the queue.
-- Run by: clients beside a worker, for a run that would be that worker's next one anyway.
-- Locks: the worker's own row FOR KEY SHARE (R4: whoever marks it dead waits, and this statement makes nothing once it
-- is marked). A row that a twin is creating is waited for.
-- Expected index: the primary keys. Zero rows: the id, or its deduplication id, is taken, the queue has limits, which
-- claims alone keep, or the worker takes no runs any more; nothing was made.
-- The row is as `client_start` makes it and `claim` leaves it. What an earlier run of the id may have left is
-- overwritten.
WITH me AS MATERIALIZED (
    SELECT k.id FROM perdure.workers k
     WHERE k.id = $1::text AND k.state = 10 AND NOT k.retired AND k.lease_until > clock_timestamp()
       AND NOT EXISTS (SELECT FROM perdure.queues q WHERE q.namespace = $4::text AND q.name = $8::text)
       FOR KEY SHARE
), made AS (
    INSERT INTO perdure.workflows (
        id, namespace, workflow, requires, pool, queue, priority, timeout, status, version, worker_id, fence, started_at,
        deadline_at, partition_key, deduplication_id, attributes, start_token, max_run_attempts, serialization)
    SELECT $3::text, $4::text, $5::text, ARRAY[$6::text], $7::text, $8::text, $9::integer,
           make_interval(secs => $10::float8), 30, nullif($2::text, ''), me.id, 1, clock_timestamp(),
           clock_timestamp() + make_interval(secs => $10::float8), $11::text, $13::text, $14::text::jsonb, $15::bigint,
           $16::integer, $17::smallint
      FROM me
    ON CONFLICT DO NOTHING
    RETURNING id
), payload AS (
    INSERT INTO perdure.workflow_payloads (workflow_id, input)
    SELECT made.id, $12::text FROM made
    ON CONFLICT (workflow_id) DO UPDATE SET input = excluded.input, definition = NULL, output = NULL, error = NULL
)
SELECT made.id FROM made
