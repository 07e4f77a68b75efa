-- Purpose: end runs whose deadline has passed: at once where nobody owns them, by a cancel where somebody does.
-- Run by: every worker's sweeper and the operator, bounded. Not those that undo their steps, or are about to.
-- Locks: the runs' rows, those of others skipped. Expected index: workflows_deadline. Zero rows: none is overdue.
WITH late AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w
     WHERE w.deadline_at IS NOT NULL AND w.status < 50 AND w.deadline_at <= now()
       AND (w.status <> 30 OR w.cancel_mode IS DISTINCT FROM 'Immediate')
       AND coalesce(w.undo, 0) = 0
     ORDER BY w.deadline_at LIMIT $1::integer
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE perdure.workflows w
   SET cancel_mode = 'Immediate',
       cancel_reason = coalesce(w.cancel_reason, 'its deadline has passed'),
       cancel_cause = CASE WHEN w.cancel_mode IS NULL THEN 1 ELSE w.cancel_cause END,
       status = CASE WHEN w.status = 30 THEN 30 ELSE 70 END,
       fence = w.fence + (w.status <> 30)::integer,
       finished_at = CASE WHEN w.status <> 30 THEN clock_timestamp() END,
       wake_at = NULL,
       waiting_for = NULL,
       edits = w.edits + 1,
       status_due_at = clock_timestamp()
  FROM late
 WHERE w.id = late.id
RETURNING w.id, w.status
