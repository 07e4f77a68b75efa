-- Purpose: begin to undo what a run has done, which has failed for good (`undo` 2) or is cancelled (1). What is undone, and
-- in which order, is said once, in a step of its own behind all others: the steps that have succeeded and have another to
-- undo them, the last that succeeded first. Its input is why. From here on the run does nothing else.
-- Run by: workers, when they have claimed such a run. Made again it changes nothing.
-- Locks: the run's row FOR NO KEY UPDATE: the only test of ownership (R1). Nothing else of the run is written meanwhile
-- (R14). Expected index: the primary keys.
-- A cancel is answered by this: the run can do steps again, and nobody can cancel or suspend it any more. Where there
-- is nothing to undo, it is a cancel like any other from here on.
-- `undo_at` null: there is nothing to undo, or a removal of the run has come first (`cancel_mode` says so).
-- Zero rows: the run is not this worker's under this fence.
WITH own AS MATERIALIZED (
    SELECT w.id, w.undo, w.undo_at, w.cancel_mode, w.suspended, w.wake_seq,
           CASE WHEN w.undo = 2 THEN coalesce((SELECT p.error FROM perdure.workflow_payloads p WHERE p.workflow_id = w.id), '{}')
                ELSE to_json(coalesce(w.cancel_reason, ''))::text END AS cause
      FROM perdure.workflows w
     WHERE w.id = $1::text AND w.worker_id = $2::text AND w.fence = $3::bigint AND w.status + 0 = 30
       FOR NO KEY UPDATE
), wanted AS MATERIALIZED (
    SELECT own.id, own.undo, own.cause FROM own
     WHERE own.undo_at IS NULL AND (own.undo = 2 AND own.cancel_mode IS NULL OR own.undo = 1 AND own.cancel_mode = 'Compensate')
), done AS MATERIALIZED (
    SELECT jsonb_agg(s.step_index ORDER BY s.fence DESC, s.seq DESC)::text AS steps
      FROM wanted
      JOIN perdure.undos u ON u.workflow_id = wanted.id
      JOIN perdure.workflow_steps s ON s.workflow_id = u.workflow_id AND s.step_index = u.step_index
     WHERE s.status = 30
), record AS (
    INSERT INTO perdure.workflow_steps (
        workflow_id, step_index, name, status, fence, seq, started_fence, started_seq, input, output, finished_at)
    SELECT wanted.id, last.step_index + 1, 'perdure.undo', 30, $3::bigint, $4::bigint, $3::bigint, $4::bigint,
           wanted.cause, done.steps, clock_timestamp()
      FROM wanted
     CROSS JOIN done
     CROSS JOIN LATERAL (SELECT s.step_index FROM perdure.workflow_steps s WHERE s.workflow_id = wanted.id
                          ORDER BY s.step_index DESC LIMIT 1) last
     WHERE done.steps IS NOT NULL
    RETURNING step_index
), begun AS (
    UPDATE perdure.workflows w
       SET undo = CASE WHEN wanted.undo = 1 AND record.step_index IS NOT NULL THEN 3 ELSE w.undo END,
           undo_at = record.step_index,
           cancel_mode = CASE WHEN wanted.undo = 1 AND record.step_index IS NULL THEN 'Graceful' END,
           suspended = false,
           edits = w.edits + 1
      FROM wanted LEFT JOIN record ON true
     WHERE w.id = wanted.id
)
SELECT coalesce(record.step_index, own.undo_at) AS undo_at, own.undo = 2 AS failed, own.cause, own.cancel_mode,
       own.suspended, own.wake_seq
  FROM own LEFT JOIN record ON true
