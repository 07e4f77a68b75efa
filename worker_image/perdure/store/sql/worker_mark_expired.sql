-- Purpose: mark workers dead whose lease has run out. The lease is tested here and nowhere else.
-- Run by: every worker's sweeper and the operator, each after one lease of unbroken contact of its own.
-- Locks: the workers' rows FOR UPDATE, those of others skipped: a beat or claim in flight wins or loses cleanly.
-- A restart of Postgres gives everybody one lease from its start.
-- Expected index: workers_pool or workers_pod (few rows are live). Zero rows: all leases hold.
WITH late AS MATERIALIZED (
    SELECT k.id FROM perdure.workers k
     WHERE k.state IN (10, 20)
       AND greatest(k.lease_until, pg_postmaster_start_time() + (k.lease_until - k.beat_at)) < clock_timestamp()
     ORDER BY k.id LIMIT $1::integer
       FOR UPDATE SKIP LOCKED
)
UPDATE perdure.workers k SET state = 40, ended_at = clock_timestamp()
  FROM late WHERE k.id = late.id
RETURNING k.id
