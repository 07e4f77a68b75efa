-- Purpose: pass the cancel of these runs on to their children, one level. A child that nobody owns ends at once, the
-- owner of any other sees the flag; one whose steps are to be undone becomes claimable for that. A deadline ends those that have it from their parent, and no others, at every level:
-- the cause goes along with the cancel.
-- Run by: every sweeper, bounded, one statement a level. Locks: the children's rows, those of others skipped: they
-- are found again. Expected index: workflows_children. Zero rows: no child is left to cancel, or they are locked.
WITH child AS MATERIALIZED (
    SELECT c.id, CASE WHEN p.undo = 3 THEN 'Compensate' ELSE p.cancel_mode END AS cancel_mode, p.cancel_cause,
           p.id AS parent, coalesce(c.undo = 0 AND (p.undo = 3 OR p.cancel_mode = 'Compensate'), false) AS undoes
      FROM perdure.workflows p
      JOIN perdure.workflows c ON c.parent_id = p.id
     WHERE p.id = ANY($1::text[]) AND (p.cancel_mode IS NOT NULL OR p.undo = 3) AND c.status < 50
       AND c.cancel_mode IS NULL AND coalesce(c.undo, 0) = 0 AND (p.cancel_cause IS NULL OR c.deadline_inherited)
     ORDER BY c.id LIMIT $2::integer
       FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE perdure.workflows w
   SET cancel_mode = child.cancel_mode,
       cancel_reason = coalesce(w.cancel_reason, CASE WHEN child.cancel_cause IS NULL
                           THEN 'run ' || child.parent || ', which started it, was cancelled'
                           ELSE 'the deadline that it has from run ' || child.parent || ' has passed' END),
       cancel_cause = child.cancel_cause,
       undo = CASE WHEN child.undoes THEN 1 ELSE w.undo END,
       status = CASE WHEN w.status = 30 THEN 30 WHEN child.undoes THEN 10 ELSE 70 END,
       fence = w.fence + (w.status <> 30 AND NOT (child.undoes AND w.status = 10))::integer,
       finished_at = CASE WHEN w.status <> 30 AND NOT child.undoes THEN clock_timestamp() END,
       reopen = w.reopen AND NOT child.undoes,
       wake_at = NULL,
       waiting_for = NULL,
       edits = w.edits + 1,
       status_due_at = clock_timestamp()
  FROM child
 WHERE w.id = child.id
RETURNING w.id, w.status
