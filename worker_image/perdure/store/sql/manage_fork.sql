-- Purpose: make the run $2 out of $1 and what that has recorded before the index $3: it goes on from there. $4 are
-- recorded ids of children that are replaced by those in $5, and what was recorded of waits for the old ones ($6) is left
-- out, so that the new ones are waited for.
-- Run by: fork, under the lock of manage_lock on the run that is forked, so that nothing of it is written meanwhile.
-- Locks: that one; a run of the new id that a twin is making is waited for.
-- Expected index: the primary keys, messages_key. Zero rows: the id is taken, nothing was made.
-- What has ended is copied, and what waits for an instant; anything else begins anew. Messages that were not received are
-- the other run's. The first fence is not 0, which says that there are no steps; those have 0, and one number for both
-- halves of theirs, so that their order is kept: it decides what a retry opens again.
WITH made AS (
    INSERT INTO perdure.workflows (
        id, namespace, workflow, requires, pool, queue, priority, partition_key, timeout, max_recoveries,
        max_run_attempts, attributes, serialization, status, fence, run_at, waiting_since, forked_from, forked_at, seed)
    SELECT $2::text, w.namespace, w.workflow, w.requires, w.pool, w.queue, w.priority, w.partition_key, w.timeout,
           w.max_recoveries, w.max_run_attempts, w.attributes, w.serialization, 10, 1, clock_timestamp(), clock_timestamp(), w.id,
           $3::integer, coalesce(w.seed, w.id)
      FROM perdure.workflows w
     WHERE w.id = $1::text
    ON CONFLICT (id) DO NOTHING
    RETURNING id, namespace, pool
), payload AS (
    INSERT INTO perdure.workflow_payloads (workflow_id, input, definition)
    SELECT made.id, p.input, p.definition
      FROM made JOIN perdure.workflow_payloads p ON p.workflow_id = $1::text
    ON CONFLICT (workflow_id) DO UPDATE
       SET input = excluded.input, definition = excluded.definition, output = NULL, error = NULL
), steps AS (
    INSERT INTO perdure.workflow_steps (
        workflow_id, step_index, name, status, fence, seq, started_fence, started_seq, attempts, input, output, error,
        attempt_errors, started_at, finished_at, wake_at)
    SELECT made.id, s.step_index, s.name, s.status, 0, (s.fence << 20) + s.seq, 0,
           (s.started_fence << 20) + s.started_seq, s.attempts, s.input,
           CASE WHEN s.name = 'perdure.start'
                THEN coalesce((SELECT r.new FROM unnest($4::text[], $5::text[]) AS r(old, new) WHERE r.old = s.output),
                              s.output)
                ELSE s.output END,
           s.error, s.attempt_errors, s.started_at, s.finished_at, s.wake_at
      FROM made
      JOIN perdure.workflow_steps s ON s.workflow_id = $1::text AND s.step_index < $3::integer
     WHERE (s.status >= 30 AND s.status <> 45 OR s.status = 15 AND s.wake_at IS NOT NULL)
       AND NOT (s.name = 'perdure.result' AND s.input = ANY($6::text[]))
), history AS (
    INSERT INTO perdure.events_history (workflow_id, step_index, name, value, set_at)
    SELECT made.id, h.step_index, h.name, h.value, h.set_at
      FROM made JOIN perdure.events_history h ON h.workflow_id = $1::text AND h.step_index < $3::integer
), events AS (
    INSERT INTO perdure.events (workflow_id, name, value, fence, seq, set_at, announced)
    SELECT DISTINCT ON (h.name) made.id, h.name, h.value, 0, 0, h.set_at, true
      FROM made JOIN perdure.events_history h ON h.workflow_id = $1::text AND h.step_index < $3::integer
     ORDER BY h.name, h.set_at DESC, h.step_index DESC
), inbox AS (
    INSERT INTO perdure.messages (workflow_id, topic, key, value, sent_at, announced, consumed_by)
    SELECT made.id, m.topic, m.key, m.value, m.sent_at, true, m.consumed_by
      FROM made JOIN perdure.messages m ON m.workflow_id = $1::text AND m.consumed_by < $3::integer
)
SELECT made.namespace, made.pool FROM made
