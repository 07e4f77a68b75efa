-- Purpose: make runs claimable whose time has come: parked ones, and those that wait out a replay's mismatch.
-- Run by: every worker's sweeper and the operator, bounded.
-- Locks: the runs' rows, those of others skipped. Expected index: workflows_wake. Zero rows: nothing is due.
WITH due AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w
     WHERE w.status IN (20, 40) AND w.wake_at IS NOT NULL AND w.wake_at <= now() AND NOT w.reopen
     ORDER BY w.wake_at LIMIT $1::integer
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE perdure.workflows w
   SET status = 10,
       fence = w.fence + 1,
       wake_seq = w.wake_seq + 1,
       wake_at = NULL,
       waiting_for = NULL,
       waiting_since = clock_timestamp(),
       status_due_at = clock_timestamp()
  FROM due
 WHERE w.id = due.id
RETURNING w.namespace, w.pool
