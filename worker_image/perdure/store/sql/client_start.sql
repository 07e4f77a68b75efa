-- Purpose: create runs that code asks for, each unless its id is taken, or its deduplication id by a run of the queue
-- that has not ended. Sent again unchanged it creates none twice.
-- Run by: clients, also in a transaction of their caller's.
-- Locks: none on rows that are there; one that a twin is creating is waited for. Sorted, so that two bulk starts with
-- common ids do not wait for each other in turn.
-- Expected index: the primary keys. What comes back was created; of an id that does not, a run was there first, or its
-- deduplication id was held. What an earlier run of the id may have left is overwritten.
-- Runs of one statement keep the order of their list: each is a microsecond after the one before it. Their place is that
-- of the statement: a transaction may have begun long before.
WITH wanted AS MATERIALIZED (
    SELECT r.id, r.workflow, r.requires, r.pool, r.queue, r.priority, r.timeout, r.partition_key, r.input,
           r.deduplication_id, r.attributes, r.start_token, r.max_run_attempts, r.serialization,
           statement_timestamp() + r.n * interval '1 microsecond' AS run_at,
           clock_timestamp() + make_interval(secs => r.delay) AS wake_at
      FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[], $9::float8[],
                  $10::float8[], $11::text[], $12::text[], $13::text[], $14::text[], $15::bigint[], $16::integer[],
                  $17::smallint[])
           WITH ORDINALITY
           AS r(id, workflow, requires, pool, queue, priority, timeout, delay, partition_key, input, deduplication_id,
                attributes, start_token, max_run_attempts, serialization, n)
     ORDER BY r.id
), made AS (
    INSERT INTO perdure.workflows (
        id, namespace, workflow, requires, pool, queue, priority, timeout, status, run_at, wake_at, waiting_for,
        waiting_since, partition_key, awaited, deduplication_id, attributes, start_token, max_run_attempts,
        serialization)
    SELECT w.id, $1::text, w.workflow, ARRAY[w.requires], w.pool, w.queue, w.priority,
           make_interval(secs => w.timeout),
           CASE WHEN w.wake_at IS NULL THEN 10 ELSE 20 END,
           coalesce(w.wake_at, w.run_at),
           w.wake_at,
           CASE WHEN w.wake_at IS NOT NULL
                THEN jsonb_build_object('kind', 'StartDelayed', 'message', 'it was started with a delay',
                                        'until', w.wake_at) END,
           clock_timestamp(),
           w.partition_key,
           $2::boolean,
           w.deduplication_id, w.attributes::jsonb, w.start_token, w.max_run_attempts, w.serialization
      FROM wanted w
    ON CONFLICT DO NOTHING
    RETURNING id
), payload AS (
    INSERT INTO perdure.workflow_payloads (workflow_id, input)
    SELECT made.id, w.input FROM made JOIN wanted w ON w.id = made.id
    ON CONFLICT (workflow_id) DO UPDATE SET input = excluded.input, definition = NULL, output = NULL, error = NULL
)
SELECT made.id FROM made
