-- Purpose: say in the rows what unclaimed runs wait for.
-- Run by: the operator. Locks: the runs' rows, those of others skipped (somebody is claiming them).
-- Expected index: workflows_pkey. Zero rows: taken meanwhile, or the rows say so already.
WITH run AS MATERIALIZED (
    SELECT w.id, w.fence FROM perdure.workflows w
     WHERE w.id = ANY($1::text[]) AND w.status = 10
     ORDER BY w.id
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE perdure.workflows w
   SET waiting_for = r.waiting_for, edits = w.edits + 1, status_due_at = clock_timestamp()
  FROM run JOIN unnest($1::text[], $2::bigint[], $3::jsonb[]) AS r(id, fence, waiting_for)
         ON r.id = run.id AND r.fence = run.fence
 WHERE w.id = run.id AND w.waiting_for IS DISTINCT FROM r.waiting_for
RETURNING w.id
