-- Purpose: mark the workers of these pods dead, on proof: their containers have terminated.
-- Run by: the operator. Locks: the workers' rows FOR UPDATE, sorted; waits for claims in flight.
-- Expected index: workers_pod. Zero rows: they stopped cleanly or were marked before.
WITH gone AS MATERIALIZED (
    SELECT k.id FROM perdure.workers k
     WHERE k.pod_uid = ANY($1::text[]) AND k.state IN (10, 20)
     ORDER BY k.id
       FOR UPDATE
)
UPDATE perdure.workers k SET state = 40, ended_at = clock_timestamp()
  FROM gone WHERE k.id = gone.id
RETURNING k.id
