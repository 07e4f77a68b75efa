-- Purpose: cancel one run. What nobody owns ends at once; the owner of a RUNNING row sees the flag at its next
-- checkpoint or beat; an ended run stays as it is.
-- Run by: clients and the command line (resources cancel through run_upsert).
-- Locks: the run's row. Expected index: workflows_pkey. Zero rows: no such run.
WITH run AS MATERIALIZED (
    SELECT w.id, w.status FROM perdure.workflows w WHERE w.id = $1::text FOR NO KEY UPDATE
), done AS (
    UPDATE perdure.workflows w
       SET cancel_mode = CASE WHEN w.cancel_mode = 'Immediate' THEN w.cancel_mode ELSE $2::text END,
           cancel_reason = coalesce(w.cancel_reason, $3::text),
           status = CASE WHEN w.status = 30 THEN 30 ELSE 70 END,
           fence = w.fence + (w.status <> 30)::integer,
           finished_at = CASE WHEN w.status <> 30 THEN clock_timestamp() END,
           wake_at = NULL,
           waiting_for = NULL,
           edits = w.edits + 1,
           status_due_at = now()
      FROM run
     WHERE w.id = run.id
       AND run.status < 50
       AND (run.status <> 30 OR w.cancel_mode IS NULL OR (w.cancel_mode = 'Graceful' AND $2::text = 'Immediate'))
    RETURNING w.status
)
SELECT coalesce(done.status, run.status) AS status FROM run LEFT JOIN done ON true
