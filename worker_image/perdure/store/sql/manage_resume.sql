-- Purpose: take these runs up again: claimable now, with all their steps; attempts, deadline and what they were duplicates
-- of are cleared, a cancel is taken back. From an owner that has not ended it, the run is taken away by the fence.
-- Run by: resume, under the locks of manage_lock, after sweep_retry_steps. Locks: held since then.
-- Expected index: workflows_pkey, workflows_children. Zero rows: there was nothing to take up.
-- What it has begun to undo it goes on to undo. A resource keeps its own word about `suspended`. The deadline is counted anew from the next claim.
WITH taken AS (
    UPDATE perdure.workflows w
       SET status = 10,
           worker_id = NULL,
           fence = w.fence + (w.status <> 10)::integer,
           wake_seq = w.wake_seq + 1,
           edits = w.edits + 1,
           run_attempts = 0,
           recoveries = 0,
           recovered_at_step = -1,
           deadline_at = NULL,
           deadline_inherited = false,
           deduplication_id = NULL,
           suspended = w.suspended AND w.name IS NOT NULL,
           cancel_mode = NULL,
           cancel_reason = NULL,
           cancel_cause = NULL,
           undo = CASE WHEN w.undo_at IS NOT NULL THEN w.undo WHEN w.undo IS NOT NULL THEN 0 END,
           cascades = EXISTS (SELECT FROM perdure.workflows c WHERE c.parent_id = w.id AND c.status < 50),
           parent_told = false,
           reopen = false,
           run_at = clock_timestamp(),
           wake_at = NULL,
           waiting_for = NULL,
           waiting_since = clock_timestamp(),
           finished_at = NULL,
           status_due_at = clock_timestamp()
     WHERE w.id = ANY($1::text[])
    RETURNING w.id
), payload AS (
    UPDATE perdure.workflow_payloads p
       SET output = NULL, error = NULL
      FROM taken
     WHERE p.workflow_id = taken.id AND (p.output IS NOT NULL OR p.error IS NOT NULL)
)
SELECT taken.id FROM taken
