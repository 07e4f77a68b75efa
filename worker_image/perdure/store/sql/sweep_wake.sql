-- Purpose: make runs claimable whose time has come: parked ones, and those that wait out a replay's mismatch.
-- Run by: every worker's sweeper and the operator. Bounded: of each pool at most $1, and no more than bring its ready
-- runs to $2 (but $3 in any case): what is woken takes its place at the end of the queue now, so of ten thousand that
-- wake at once only so many are ever ahead of a run that comes fresh.
-- Locks: the runs' rows, those of others skipped. Zero rows: nothing is due.
-- Expected index: workflows_wake, one look-up for each pool that has waiting runs, then the due entries of each;
-- workflows_ready for the count, of pools where something is due.
WITH RECURSIVE pool(namespace, pool) AS (
    (SELECT w.namespace, w.pool FROM perdure.workflows w
      WHERE w.status IN (20, 40) AND w.wake_at IS NOT NULL AND NOT w.reopen
      ORDER BY w.namespace, w.pool LIMIT 1)
    UNION ALL
    SELECT next.namespace, next.pool
      FROM pool p
     CROSS JOIN LATERAL (
           SELECT w.namespace, w.pool FROM perdure.workflows w
            WHERE w.status IN (20, 40) AND w.wake_at IS NOT NULL AND NOT w.reopen
              AND (w.namespace, w.pool) > (p.namespace, p.pool)
            ORDER BY w.namespace, w.pool LIMIT 1) next
), room AS MATERIALIZED (
    SELECT p.namespace, p.pool, least($1::integer, greatest($3::integer, $2::integer - ready.runs)) AS runs
      FROM pool p
     CROSS JOIN LATERAL (
           SELECT w.id FROM perdure.workflows w
            WHERE w.status IN (20, 40) AND w.wake_at IS NOT NULL AND NOT w.reopen
              AND w.namespace = p.namespace AND w.pool = p.pool AND w.wake_at <= now()
            ORDER BY w.wake_at LIMIT 1) first
     CROSS JOIN LATERAL (
           SELECT count(*) AS runs
             FROM (SELECT FROM perdure.workflows w
                    WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
                      AND w.namespace = p.namespace AND w.pool = p.pool
                    LIMIT $2::integer) h) ready
), due AS MATERIALIZED (
    SELECT d.id
      FROM room
     CROSS JOIN LATERAL (
           SELECT w.id FROM perdure.workflows w
            WHERE w.status IN (20, 40) AND w.wake_at IS NOT NULL AND NOT w.reopen
              AND w.namespace = room.namespace AND w.pool = room.pool AND w.wake_at <= now()
            ORDER BY w.wake_at LIMIT room.runs
              FOR NO KEY UPDATE SKIP LOCKED) d
)
UPDATE perdure.workflows w
   SET status = 10,
       fence = w.fence + 1,
       wake_seq = w.wake_seq + 1,
       run_at = clock_timestamp(),
       wake_at = NULL,
       waiting_for = NULL,
       waiting_since = clock_timestamp(),
       status_due_at = clock_timestamp()
  FROM due
 WHERE w.id = due.id
RETURNING w.namespace, w.pool
