-- Purpose: what must not happen although its run may come to its end all the same. Run by: the checker.
-- A body begins and its start is not durable; a recovery is counted and no worker was dead (a drain, a wake, a claim,
-- or a replay that did not match, which no program here gives a reason for).
SELECT e.run, format('the body of step %s began under the current fence, its row: %s', e.step_index, e.step_status)
       AS sentence
  FROM faults.effects e
 WHERE e.run_fence = e.fence AND e.step_status IS DISTINCT FROM 10 AND coalesce(e.step_status, 0) < 30
UNION ALL
SELECT r.run, format('a recovery was counted by %s, and worker %s was in state %s', r.app, r.old_worker, r.worker_state)
  FROM faults.run_writes r
 WHERE r.recoveries > r.old_recoveries
   AND NOT coalesce(r.old_status = 30 AND r.worker_state = 40 AND r.app <> r.old_worker, false)
