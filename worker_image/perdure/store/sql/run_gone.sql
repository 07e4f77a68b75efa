-- Purpose: these runs are to be removed: mark the rows for it and cancel what has not ended, for the reason $2.
-- Run by: the operator, at the delete of a resource and when its resync finds ghosts; clients, at the delete of a run.
-- Locks: the runs' rows, sorted. Expected index: workflows_pkey. Zero rows: unknown or marked before.
WITH gone AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w
     WHERE w.id = ANY($1::text[]) AND NOT w.deleted
     ORDER BY w.id
       FOR NO KEY UPDATE
)
UPDATE perdure.workflows w
   SET deleted = true,
       cancel_mode = CASE WHEN w.status >= 50 THEN w.cancel_mode ELSE 'Immediate' END,
       cancel_reason = CASE WHEN w.status >= 50 THEN w.cancel_reason
                            ELSE coalesce(w.cancel_reason, $2::text) END,
       status = CASE WHEN w.status IN (10, 20, 40) THEN 70 ELSE w.status END,
       fence = w.fence + (w.status IN (10, 20, 40))::integer,
       finished_at = CASE WHEN w.status IN (10, 20, 40) THEN clock_timestamp() ELSE w.finished_at END,
       wake_at = NULL,
       waiting_for = NULL,
       edits = w.edits + 1
  FROM gone
 WHERE w.id = gone.id
RETURNING w.id
