-- Purpose: give back runs that this worker owns without knowing them: its claim's answer was lost (R6).
-- Run by: the beater, for rows that two beats in a row showed and no memory holds. No attempt is counted.
-- Locks: the runs' rows, sorted. Expected index: workflows_pkey. Zero rows: none of them is mine any more.
WITH mine AS MATERIALIZED (
    SELECT w.id, w.fence FROM perdure.workflows w
     WHERE w.id = ANY($2::text[]) AND w.worker_id = $1::text AND w.status + 0 = 30
     ORDER BY w.id
       FOR NO KEY UPDATE
)
UPDATE perdure.workflows w
   SET status = 10,
       worker_id = NULL,
       fence = w.fence + 1,
       ended_fence = w.fence,
       ended_by = $1::text,
       waiting_since = clock_timestamp(),
       status_due_at = clock_timestamp()
  FROM mine JOIN unnest($2::text[], $3::bigint[]) AS r(id, fence) ON r.id = mine.id AND r.fence = mine.fence
 WHERE w.id = mine.id
RETURNING w.id
