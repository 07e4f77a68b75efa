-- Purpose: everything the projection of some runs needs, in one snapshot, so that equal revisions mean equal
-- content. Bounded: of each run at most $2 steps (failed and live ones first, then the latest), no step output over
-- $3 bytes, no run output over $4, no error over $5.
-- Run by: the worker's reporter for runs it holds, the operator for all others.
-- Locks: none. Expected index: the primary keys. A run that does not come back does not exist.
SELECT w.id, w.namespace, w.name, w.workflow, w.pool, w.queue, w.version, w.status, w.fence, w.edits, w.suspended,
       w.cancel_mode, w.cancel_reason, w.undo, w.generation, w.run_attempts, w.recoveries, w.max_recoveries, w.waiting_for,
       w.waiting_since, w.wake_at, w.created_at, w.started_at, w.finished_at, k.pod AS worker_pod, p.definition,
       CASE WHEN octet_length(p.output) <= $4::integer THEN p.output END AS output,
       coalesce(octet_length(p.output), 0) AS output_bytes,
       left(p.error, $5::integer) AS error,
       total.last_seq, total.succeeded, total.failed, total.running, total.retrying,
       shown.indexes, shown.names, shown.statuses, shown.attempts, shown.outputs, shown.errors, shown.started,
       shown.finished, shown.wakes
  FROM perdure.workflows w
  LEFT JOIN perdure.workflow_payloads p ON p.workflow_id = w.id
  LEFT JOIN perdure.workers k ON k.id = w.worker_id
 CROSS JOIN LATERAL (
       SELECT coalesce(max(s.seq) FILTER (WHERE s.fence = w.fence), 0) AS last_seq,
              count(*) FILTER (WHERE s.status = 30) AS succeeded,
              count(*) FILTER (WHERE s.status = 40) AS failed,
              count(*) FILTER (WHERE s.status = 10) AS running,
              count(*) FILTER (WHERE s.status IN (15, 20)) AS retrying
         FROM perdure.workflow_steps s WHERE s.workflow_id = w.id) total
 CROSS JOIN LATERAL (
       SELECT array_agg(c.step_index ORDER BY c.step_index) AS indexes,
              array_agg(c.name ORDER BY c.step_index) AS names,
              array_agg(c.status ORDER BY c.step_index) AS statuses,
              array_agg(c.attempts ORDER BY c.step_index) AS attempts,
              array_agg(CASE WHEN octet_length(c.output) <= $3::integer THEN c.output END ORDER BY c.step_index) AS outputs,
              array_agg(left(c.error, $5::integer) ORDER BY c.step_index) AS errors,
              array_agg(c.started_at ORDER BY c.step_index) AS started,
              array_agg(c.finished_at ORDER BY c.step_index) AS finished,
              array_agg(c.wake_at ORDER BY c.step_index) AS wakes
         FROM (SELECT * FROM perdure.workflow_steps s WHERE s.workflow_id = w.id
                ORDER BY s.status IN (30, 45), s.step_index DESC LIMIT $2::integer) c) shown
 WHERE w.id = ANY($1::text[])
