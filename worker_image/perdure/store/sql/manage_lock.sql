-- Purpose: hold the runs that something is to be done with, first statement of its transaction: what the next ones read
-- must be younger than these locks, and what is decided is decided on what this one brings back.
-- Run by: clients, and workers for the calls of runs. Whoever settles, claims or wakes one of them waits, or was first.
-- Locks: the runs' rows, sorted, FOR NO KEY UPDATE, none skipped: all of them or none is changed.
-- Expected index: workflows_pkey. A run that does not come back does not exist.
SELECT w.id, w.namespace, w.pool, w.name, w.status, w.fence, w.worker_id, w.cancel_mode, w.suspended, w.wake_seq,
       w.deleted, w.parent_id, w.reopen, w.started_at IS NOT NULL AS started, w.undo_at IS NOT NULL AS undone
  FROM perdure.workflows w
 WHERE w.id = ANY($1::text[])
 ORDER BY w.id
   FOR NO KEY UPDATE
