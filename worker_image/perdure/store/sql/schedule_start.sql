-- Purpose: start runs of schedules under ids that stand for their ticks, each unless its id is taken: so a tick has one
-- run, however many start it.
-- Run by: every worker's sweeper, in the transaction that holds the schedules' rows; clients, for a trigger and for
-- ticks of the past.
-- Locks: none on rows that are there; one that a twin is creating is waited for, sorted by id.
-- Expected index: schedules_pkey, the primary keys. A row for each id whose schedule is there: whether it was created.
-- What an earlier run of the id may have left is overwritten. Runs of one statement keep the order of their list.
WITH wanted AS MATERIALIZED (
    SELECT r.id, now() + r.n * interval '1 microsecond' AS run_at, s.namespace, s.name, s.workflow, s.requires, s.input,
           s.pool, s.queue, s.priority, s.timeout, s.partition_key, s.attributes, s.max_run_attempts
      FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS r(namespace, name, id, n)
      JOIN perdure.schedules s ON s.namespace = r.namespace AND s.name = r.name
     ORDER BY r.id
), made AS (
    INSERT INTO perdure.workflows (
        id, namespace, workflow, requires, pool, queue, priority, timeout, partition_key, attributes, max_run_attempts,
        status, run_at, waiting_since, schedule)
    SELECT w.id, w.namespace, w.workflow, ARRAY[w.requires], w.pool, w.queue, w.priority, w.timeout, w.partition_key,
           w.attributes, w.max_run_attempts, 10, w.run_at, clock_timestamp(), w.name
      FROM wanted w
    ON CONFLICT (id) DO NOTHING
    RETURNING id
), payload AS (
    INSERT INTO perdure.workflow_payloads (workflow_id, input)
    SELECT made.id, w.input FROM made JOIN wanted w ON w.id = made.id
    ON CONFLICT (workflow_id) DO UPDATE SET input = excluded.input, definition = NULL, output = NULL, error = NULL
)
SELECT w.id, w.namespace, w.pool, made.id IS NOT NULL AS created FROM wanted w LEFT JOIN made ON made.id = w.id
