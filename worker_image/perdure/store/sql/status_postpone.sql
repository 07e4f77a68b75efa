-- Purpose: look again later at runs whose status could not be written, so that they hold up no others.
-- Run by: the operator. Locks: the runs' rows, those of others skipped. Expected index: workflows_pkey.
WITH run AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w
     WHERE w.id = ANY($1::text[]) AND w.status_due_at IS NOT NULL
     ORDER BY w.id
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE perdure.workflows w SET status_due_at = clock_timestamp() + make_interval(secs => $2::float8)
  FROM run WHERE w.id = run.id
RETURNING w.id
