-- Purpose: make a run that has failed claimable again, last of the three: its counts begin anew, its deadline is counted
-- from the next claim, any version may take it, and its parent is told of the end once more.
-- Run by: starts that run again what has failed. Locks: held since the first. Expected index: workflows_pkey.
-- Its deduplication id is given up: another run may hold it by now.
UPDATE perdure.workflows w
   SET status = 10,
       fence = w.fence + 1,
       wake_seq = w.wake_seq + 1,
       edits = w.edits + 1,
       version = NULL,
       run_attempts = 0,
       recoveries = 0,
       recovered_at_step = -1,
       deadline_at = CASE WHEN w.deadline_inherited THEN w.deadline_at END,
       cancel_mode = NULL,
       cancel_reason = NULL,
       cancel_cause = NULL,
       undo = CASE WHEN w.undo IS NOT NULL THEN 0 END,
       deduplication_id = NULL,
       start_token = $2::bigint,
       parent_told = false,
       reopen = false,
       run_at = clock_timestamp(),
       wake_at = NULL,
       waiting_for = NULL,
       waiting_since = clock_timestamp(),
       started_at = NULL,
       finished_at = NULL,
       status_due_at = clock_timestamp()
 WHERE w.id = $1::text
RETURNING w.namespace, w.pool
