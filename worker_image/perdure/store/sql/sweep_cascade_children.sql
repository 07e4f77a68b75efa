-- Purpose: pass the cancel of these runs on to their children, one level. A child that nobody owns ends at once, the
-- owner of any other sees the flag. A deadline ends those that have it from their parent, and no others, at every level:
-- the cause goes along with the cancel.
-- Run by: every sweeper, bounded, one statement a level. Locks: the children's rows, those of others skipped: they
-- are found again. Expected index: workflows_children. Zero rows: no child is left to cancel, or they are locked.
WITH child AS MATERIALIZED (
    SELECT c.id, p.cancel_mode, p.cancel_cause, p.id AS parent
      FROM perdure.workflows p
      JOIN perdure.workflows c ON c.parent_id = p.id
     WHERE p.id = ANY($1::text[]) AND p.cancel_mode IS NOT NULL AND c.status < 50
       AND c.cancel_mode IS NULL AND (p.cancel_cause IS NULL OR c.deadline_inherited)
     ORDER BY c.id LIMIT $2::integer
       FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE perdure.workflows w
   SET cancel_mode = child.cancel_mode,
       cancel_reason = coalesce(w.cancel_reason, CASE WHEN child.cancel_cause IS NULL
                           THEN 'run ' || child.parent || ', which started it, was cancelled'
                           ELSE 'the deadline that it has from run ' || child.parent || ' has passed' END),
       cancel_cause = child.cancel_cause,
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
