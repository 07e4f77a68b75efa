-- Purpose: hold runs whose failed attempt is to be followed by another now, first of three statements in one
-- transaction: what the next two read must be younger than these locks.
-- Run by: every worker's sweeper and the operator, bounded.
-- Locks: the runs' rows, those of others skipped. Expected index: workflows_retry. Zero rows: nothing is due.
SELECT w.id FROM perdure.workflows w
 WHERE w.status = 20 AND w.reopen AND w.wake_at <= now()
 ORDER BY w.wake_at LIMIT $1::integer
   FOR NO KEY UPDATE SKIP LOCKED
