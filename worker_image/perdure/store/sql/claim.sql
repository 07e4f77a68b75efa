-- Purpose: take up to $7 ready runs of one namespace, pool and queue, in the order priority, place, id.
-- Run by: the worker's claimer, for each of its queues while it has free slots.
-- Locks: the worker's own row FOR KEY SHARE (R4: whoever marks it dead waits, and this statement takes nothing
-- once it is marked), then the taken runs; those that others hold are skipped.
-- Expected index: workflows_ready, one range for each set of names that ready runs require and each of two
-- versions: none yet, and this worker's. What this worker cannot run costs one look-up a range, however many rows.
-- `route` finds the ranges, `next` looks without locking how the next $7 runs in order divide among them, `pick`
-- locks so many of each: no more rows are locked than are taken.
-- A retired worker, one of an earlier version, takes only what is bound to it, or that version would never end.
-- Zero rows: nothing ready, all of it locked by others just now, or this worker is not live.
WITH RECURSIVE me AS MATERIALIZED (
    SELECT k.id FROM perdure.workers k
     WHERE k.id = $1::text AND k.state = 10 AND k.lease_until > clock_timestamp()
       FOR KEY SHARE
), route(version, route, able) AS (
    SELECT first.version, first.route, first.able
      FROM (SELECT '' AS version
             WHERE NOT EXISTS (SELECT FROM perdure.workers k WHERE k.id = $1::text AND k.retired)
             UNION ALL
            SELECT nullif($6::text, '')) v
     CROSS JOIN LATERAL (
           SELECT v.version, w.route, w.requires <@ $5::text[] AS able
             FROM perdure.workflows w
            WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
              AND w.namespace = $2::text AND w.pool = $3::text AND w.queue = $4::text
              AND coalesce(w.version, '') = v.version
            ORDER BY w.route LIMIT 1) first
    UNION ALL
    SELECT next.version, next.route, next.able
      FROM route r
     CROSS JOIN LATERAL (
           SELECT r.version, w.route, w.requires <@ $5::text[] AS able
             FROM perdure.workflows w
            WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
              AND w.namespace = $2::text AND w.pool = $3::text AND w.queue = $4::text
              AND coalesce(w.version, '') = r.version AND w.route > r.route
            ORDER BY w.route LIMIT 1) next
), next AS MATERIALIZED (
    SELECT heads.version, heads.route, count(*) AS runs
      FROM (SELECT r.version, r.route
              FROM route r
             CROSS JOIN LATERAL (
                   SELECT w.priority, w.run_at, w.id
                     FROM perdure.workflows w
                    WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
                      AND w.namespace = $2::text AND w.pool = $3::text AND w.queue = $4::text
                      AND coalesce(w.version, '') = r.version AND w.route = r.route
                      AND (w.deadline_at IS NULL OR w.deadline_at > now())
                    ORDER BY w.priority, w.run_at, w.id LIMIT $7::integer) h
             WHERE r.able
             ORDER BY h.priority, h.run_at, h.id LIMIT $7::integer) heads
     GROUP BY heads.version, heads.route
), pick AS MATERIALIZED (
    SELECT p.id, p.waiting_since
      FROM next
     CROSS JOIN LATERAL (
           SELECT w.id, w.waiting_since
             FROM perdure.workflows w
            WHERE EXISTS (SELECT FROM me)
              AND w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
              AND w.namespace = $2::text AND w.pool = $3::text AND w.queue = $4::text
              AND coalesce(w.version, '') = next.version AND w.route = next.route
              AND w.requires <@ $5::text[]
              AND (w.deadline_at IS NULL OR w.deadline_at > now())
            ORDER BY w.priority, w.run_at, w.id LIMIT next.runs
              FOR NO KEY UPDATE SKIP LOCKED) p
), taken AS (
    UPDATE perdure.workflows w
       SET status = 30,
           worker_id = me.id,
           fence = w.fence + 1,
           edits = 0,
           version = coalesce(w.version, nullif($6::text, '')),
           started_at = coalesce(w.started_at, clock_timestamp()),
           deadline_at = coalesce(w.deadline_at, clock_timestamp() + w.timeout),
           wake_at = NULL,
           waiting_for = NULL,
           waiting_since = NULL,
           status_due_at = clock_timestamp() + interval '3 seconds'
      FROM me, pick
     WHERE w.id = pick.id
    RETURNING w.id, w.fence, w.namespace, w.name, w.workflow, w.run_attempts, w.max_run_attempts, w.recoveries,
              w.wake_seq, w.cancel_mode, w.suspended, w.priority, w.run_at,
              extract(epoch FROM w.deadline_at - clock_timestamp())::float8 AS deadline_in,
              extract(epoch FROM clock_timestamp() - pick.waiting_since)::float8 AS ready_seconds
)
SELECT taken.*, coalesce(p.input, '') AS input, p.definition
  FROM taken LEFT JOIN perdure.workflow_payloads p ON p.workflow_id = taken.id
 ORDER BY taken.priority, taken.run_at, taken.id
