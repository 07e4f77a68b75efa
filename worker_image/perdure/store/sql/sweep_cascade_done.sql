-- Purpose: of these cancelled runs, those whose children are all cancelled or ended need no further look.
-- Run by: every sweeper, in a later statement than the one that cancelled them.
-- Locks: the runs' rows, those of others skipped. Expected index: workflows_pkey, workflows_children. Zero rows: none.
WITH done AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w
     WHERE w.id = ANY($1::text[]) AND w.cascades AND (w.cancel_mode IS NOT NULL OR w.undo = 3)
       AND NOT EXISTS (
           SELECT FROM perdure.workflows c
            WHERE c.parent_id = w.id AND c.status < 50 AND c.cancel_mode IS NULL AND coalesce(c.undo, 0) = 0
              AND (w.cancel_cause IS NULL OR c.deadline_inherited))
     ORDER BY w.id
       FOR NO KEY UPDATE OF w SKIP LOCKED
)
UPDATE perdure.workflows w SET cascades = false FROM done WHERE w.id = done.id RETURNING w.id
