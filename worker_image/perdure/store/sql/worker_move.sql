-- Purpose: take runs from ended workers and make them claimable again.
-- Run by: every worker's sweeper and the operator, in another transaction than the marking (R5).
-- Locks: the runs' rows, those of others skipped (a dead session's row locks go with the session).
-- Expected index: workflows_owned, workflow_steps_pkey. Zero rows: nothing left, or all of it locked just now.
-- From a dead worker it counts as a recovery, from a stopped one as nothing (R12). A final step since the last
-- recovery starts the count again. Over the limit the run is parked; one with a cancel ends as cancelled, unless
-- its steps are to be undone.
WITH run AS MATERIALIZED (
    SELECT w.id, w.worker_id, w.recoveries, w.max_recoveries, w.recovered_at_step,
           w.cancel_mode IS NOT NULL AND (w.undo = 1 AND w.cancel_mode = 'Compensate') IS NOT TRUE AS cancelled
      FROM perdure.workflows w
     WHERE w.status = 30 AND w.worker_id = ANY($1::text[])
     ORDER BY w.worker_id, w.id LIMIT $2::integer
       FOR NO KEY UPDATE SKIP LOCKED
), counted AS MATERIALIZED (
    SELECT run.id, run.cancelled, run.max_recoveries, k.state = 30 AS stopped,
           greatest(run.recovered_at_step, done.step_index) AS recovered_at_step,
           CASE WHEN k.state = 30 THEN run.recoveries
                WHEN done.step_index > run.recovered_at_step THEN 1
                ELSE run.recoveries + 1 END AS recoveries
      FROM run
      LEFT JOIN perdure.workers k ON k.id = run.worker_id
      LEFT JOIN LATERAL (
           SELECT s.step_index FROM perdure.workflow_steps s
            WHERE s.workflow_id = run.id AND s.status >= 30
            ORDER BY s.step_index DESC LIMIT 1) done ON true
)
UPDATE perdure.workflows w
   SET status = CASE WHEN c.cancelled THEN 70
                     WHEN c.stopped IS NOT TRUE AND c.recoveries > c.max_recoveries THEN 80
                     ELSE 10 END,
       worker_id = NULL,
       fence = w.fence + 1,
       ended_fence = w.fence,
       ended_by = NULL,
       recoveries = c.recoveries,
       recovered_at_step = CASE WHEN c.stopped THEN w.recovered_at_step ELSE c.recovered_at_step END,
       waiting_for = NULL,
       waiting_since = clock_timestamp(),
       finished_at = CASE WHEN c.cancelled
                            OR c.stopped IS NOT TRUE AND c.recoveries > c.max_recoveries THEN clock_timestamp() END,
       status_due_at = clock_timestamp()
  FROM counted c
 WHERE w.id = c.id
RETURNING w.id, w.status, w.namespace, w.pool, w.workflow, w.run_attempts, w.max_run_attempts, w.recoveries
