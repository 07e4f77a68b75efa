-- Purpose: what must not happen although its run may come to its end all the same. Run by: the checker.
-- A body begins and its start is not durable; a recovery is counted and no worker was dead (a drain, a wake, a claim,
-- or a replay that did not match, which no program here gives a reason for); a body begins after its own worker has
-- ended the run ($1: the time of day less the clock that `asked` is of, which drift apart a little); a step is
-- started after a cancel or a deadline.
SELECT e.run, format('the body of step %s began under the current fence, its row: %s', e.step_index, e.step_status)
       AS sentence
  FROM faults.effects e
 WHERE e.run_fence = e.fence AND e.step_status IS DISTINCT FROM 10 AND coalesce(e.step_status, 0) < 30
UNION ALL
SELECT r.run, format('a recovery was counted by %s, and worker %s was in state %s', r.app, r.old_worker, r.worker_state)
  FROM faults.run_writes r
 WHERE r.recoveries > r.old_recoveries
   AND NOT coalesce(r.old_status = 30 AND r.worker_state = 40 AND r.app <> r.old_worker, false)
UNION ALL
SELECT e.run, format('the body of step %s began %s after its worker had ended the run', e.step_index,
                     to_timestamp(e.asked + $1::float8) - w.finished_at)
  FROM faults.effects e JOIN perdure.workflows w ON w.id = e.run
 WHERE w.status >= 50 AND e.fence = w.ended_fence AND w.ended_by IS NOT NULL
   AND to_timestamp(e.asked + $1::float8) > w.finished_at + interval '20 milliseconds'
UNION ALL
SELECT s.run, format('step %s was started by %s although the run was to be cancelled (%s)', s.step_index, s.app,
                     s.run_cancel)
  FROM faults.step_writes s
 WHERE s.status = 10 AND s.run_cancel IS NOT NULL
