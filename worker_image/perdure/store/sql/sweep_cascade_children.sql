-- Purpose: pass the cancel of these runs on to their children, one level. A child that nobody owns ends at once, the
-- owner of any other sees the flag. A deadline ends those that have it from their parent, and no child with a timeout
-- of its own.
-- Run by: every sweeper, bounded, one statement a level. Locks: the children's rows, those of others skipped: they
-- are found again. Expected index: workflows_children. Zero rows: no child is left to cancel, or they are locked.
WITH child AS MATERIALIZED (
    SELECT c.id, p.cancel_mode, p.id AS parent
      FROM perdure.workflows p
      JOIN perdure.workflows c ON c.parent_id = p.id
     WHERE p.id = ANY($1::text[]) AND p.cancel_mode IS NOT NULL AND c.status < 50
       AND c.cancel_mode IS NULL AND (c.timeout IS NULL OR p.cancel_reason IS DISTINCT FROM 'deadline')
     ORDER BY c.id LIMIT $2::integer
       FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE perdure.workflows w
   SET cancel_mode = child.cancel_mode,
       cancel_reason = coalesce(w.cancel_reason, 'run ' || child.parent || ', which started it, was cancelled'),
       status = CASE WHEN w.status = 30 THEN 30 ELSE 70 END,
       fence = w.fence + (w.status <> 30)::integer,
       finished_at = CASE WHEN w.status <> 30 THEN clock_timestamp() END,
       wake_at = NULL,
       waiting_for = NULL,
       edits = w.edits + 1,
       status_due_at = clock_timestamp()
  FROM child
 WHERE w.id = child.id
RETURNING w.id, w.status
