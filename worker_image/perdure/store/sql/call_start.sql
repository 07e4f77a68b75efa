-- Purpose: create child runs, each unless its id, or its deduplication id, is taken, and record the start as the
-- parent's step.
-- Run by: the worker's journal, after everything the run has pending. Sent again unchanged it has no second effect.
-- Locks: the runs' rows, sorted, FOR NO KEY UPDATE: the only test of ownership, all else hangs on it (R1, R15); then new
-- rows, sorted by id, that a twin may be creating. A cancel of the parent waits for the child, or prevents it.
-- Expected index: the primary keys.
-- A row for every owned run, with the fence it was found under and the count of wakes of this statement's snapshot,
-- which is older than the lock: a wake since then is none that was seen (R7). Then a row for every call that was done
-- or tried; none for a call whose earlier copy came through (call_fence, call_seq), nor for any with a cancel set.
-- Not done: the id, or the deduplication id, is taken.
WITH own AS MATERIALIZED (
    SELECT w.id, w.fence, w.cancel_mode, w.suspended, w.call_fence, w.call_seq, w.namespace, w.pool, w.queue,
           w.priority, w.partition_key, w.deadline_at
      FROM perdure.workflows w
     WHERE w.id = ANY($1::text[]) AND w.worker_id = $2::text AND w.status + 0 = 30
     ORDER BY w.id
       FOR NO KEY UPDATE
), before AS MATERIALIZED (
    SELECT w.id, w.wake_seq FROM perdure.workflows w WHERE w.id = ANY($1::text[])
), call AS MATERIALIZED (
    SELECT r.*,
           own.namespace, coalesce(r.pool, own.pool) AS in_pool,
           coalesce(r.queue, own.queue) AS in_queue, coalesce(r.priority, own.priority) AS with_priority,
           coalesce(r.partition_key, own.partition_key) AS in_partition,
           CASE WHEN r.timeout IS NULL AND NOT r.unlimited THEN own.deadline_at END AS inherited,
           clock_timestamp() + make_interval(secs => r.delay) AS begin_at
      FROM unnest($3::text[], $4::bigint[], $5::integer[], $6::bigint[], $7::text[], $8::text[],
                  $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::integer[],
                  $16::float8[], $17::float8[], $18::text[], $19::boolean[], $20::text[], $21::text[], $22::integer[],
                  $23::smallint[])
           WITH ORDINALITY AS r(id, fence, step_index, seq, input, output, child, workflow, requires, child_input, pool,
                                queue, priority, timeout, delay, partition_key, unlimited, deduplication_id, attributes,
                                max_run_attempts, serialization, n)
      JOIN own ON own.id = r.id AND own.fence = r.fence
     WHERE own.cancel_mode IS NULL AND (own.call_fence, own.call_seq) < (r.fence, r.seq)
), mark AS (
    UPDATE perdure.workflows w
       SET call_fence = c.fence, call_seq = c.seq, edits = w.edits + 1, cascades = true
      FROM (SELECT call.id, call.fence, max(call.seq) AS seq FROM call GROUP BY call.id, call.fence) c
     WHERE w.id = c.id
), child AS (
    INSERT INTO perdure.workflows (
        id, namespace, workflow, requires, pool, queue, priority, partition_key, timeout, deadline_at,
        deadline_inherited, status, run_at, wake_at, waiting_for, waiting_since, parent_id, parent_step,
        deduplication_id, attributes, max_run_attempts, serialization)
    SELECT call.child, call.namespace, call.workflow, ARRAY[call.requires], call.in_pool, call.in_queue,
           call.with_priority, call.in_partition, make_interval(secs => call.timeout),
           call.inherited, call.inherited IS NOT NULL,
           CASE WHEN call.begin_at IS NULL THEN 10 ELSE 20 END,
           coalesce(call.begin_at, clock_timestamp()),
           call.begin_at,
           CASE WHEN call.begin_at IS NOT NULL
                THEN jsonb_build_object('kind', 'StartDelayed', 'message', 'it was started with a delay',
                                        'until', call.begin_at) END,
           clock_timestamp(), call.id, call.step_index,
           call.deduplication_id, call.attributes::jsonb, call.max_run_attempts, call.serialization
      FROM call
     ORDER BY call.child, call.n
    ON CONFLICT DO NOTHING
    RETURNING id, parent_id, parent_step
), made AS MATERIALIZED (
    SELECT call.id, call.step_index, call.child, call.child_input, call.in_pool
      FROM call JOIN child ON child.id = call.child AND child.parent_id = call.id
                          AND child.parent_step = call.step_index
), payload AS (
    INSERT INTO perdure.workflow_payloads (workflow_id, input)
    SELECT made.child, made.child_input FROM made
    ON CONFLICT (workflow_id) DO UPDATE SET input = excluded.input, definition = NULL, output = NULL, error = NULL
), step AS (
    INSERT INTO perdure.workflow_steps AS t (
        workflow_id, step_index, name, status, fence, seq, started_fence, started_seq, input, output, finished_at)
    SELECT call.id, call.step_index, 'perdure.start', 30, call.fence, call.seq, call.fence, call.seq, call.input,
           call.output, clock_timestamp()
      FROM call JOIN made ON made.id = call.id AND made.step_index = call.step_index
    ON CONFLICT (workflow_id, step_index) DO UPDATE SET
        name = excluded.name,
        status = excluded.status,
        fence = excluded.fence,
        seq = excluded.seq,
        output = excluded.output,
        finished_at = excluded.finished_at,
        wake_at = NULL
     WHERE t.status < 30 AND (t.fence, t.seq) < (excluded.fence, excluded.seq)
    RETURNING t.workflow_id, t.step_index
)
SELECT own.id, own.fence, own.cancel_mode, own.suspended, before.wake_seq,
       NULL::bigint AS seq, NULL::boolean AS done, NULL::text AS output
  FROM own JOIN before ON before.id = own.id
UNION ALL
SELECT call.id, call.fence, NULL, NULL, NULL, call.seq, made.child IS NOT NULL, call.output
  FROM call LEFT JOIN made ON made.id = call.id AND made.step_index = call.step_index
