-- Purpose: make those runs claimable, last of the three.
-- Run by: the sweep of retries. Locks: held since the first. Expected index: workflows_pkey.
UPDATE perdure.workflows w
   SET status = 10,
       fence = w.fence + 1,
       wake_seq = w.wake_seq + 1,
       reopen = false,
       wake_at = NULL,
       waiting_for = NULL,
       waiting_since = clock_timestamp(),
       status_due_at = clock_timestamp()
 WHERE w.id = ANY($1::text[])
RETURNING w.namespace, w.pool
