-- Purpose: the ranges of the index in which runs of one queue are ready that this worker can run, with the first run
-- of each: what a claim is told to take from. Of partitions at most $8 of each version and set of required names, the
-- first after $7 and then from the beginning, so that turns go on where they stopped.
-- Run by: the worker's claimer, before its first claim, and again whenever rows may have come back before the place
-- up to which it has claimed (protocol, "Claim floor").
-- Locks: none. Expected index: workflows_ready, one look-up for each set of names that ready runs require, each of
-- two versions (none yet, and this worker's) and each partition. What this worker cannot run costs one look-up a set
-- and version, however many rows. While an old snapshot keeps dead entries from being removed, it reads them all.
-- A retired worker, one of an earlier version, takes only what is bound to it, or that version would never end.
-- Zero rows: nothing ready.
WITH RECURSIVE route(version, route, able) AS (
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
), side(wrapped, above, upto) AS (
    -- Two halves of the circle: behind $7, whose next text is the one with chr(1) added, and up to it.
    VALUES (false, $7::text, NULL), (true, NULL, $7::text)
), part(version, route, wrapped, upto, number, partition_key, priority, run_at, id) AS (
    SELECT r.version, r.route, s.wrapped, s.upto, 1, p.partition_key, p.priority, p.run_at, p.id
      FROM route r
     CROSS JOIN side s
     CROSS JOIN LATERAL (
           SELECT w.partition_key, w.priority, w.run_at, w.id
             FROM perdure.workflows w
            WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
              AND w.namespace = $2::text AND w.pool = $3::text AND w.queue = $4::text
              AND coalesce(w.version, '') = r.version AND w.route = r.route
              AND w.partition_key >= coalesce(s.above || chr(1), '')
            ORDER BY w.partition_key, w.priority, w.run_at, w.id LIMIT 1) p
     WHERE r.able AND (s.upto IS NULL OR p.partition_key <= s.upto)
    UNION ALL
    SELECT a.version, a.route, a.wrapped, a.upto, a.number + 1, p.partition_key, p.priority, p.run_at, p.id
      FROM part a
     CROSS JOIN LATERAL (
           SELECT w.partition_key, w.priority, w.run_at, w.id
             FROM perdure.workflows w
            WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
              AND w.namespace = $2::text AND w.pool = $3::text AND w.queue = $4::text
              AND coalesce(w.version, '') = a.version AND w.route = a.route
              AND w.partition_key > a.partition_key
            ORDER BY w.partition_key, w.priority, w.run_at, w.id LIMIT 1) p
     WHERE a.number < $8::integer AND (a.upto IS NULL OR p.partition_key <= a.upto)
)
SELECT part.version, part.route, part.partition_key, part.priority, part.run_at, part.id, part.wrapped,
       part.number >= $8::integer AS cut
  FROM part
 ORDER BY part.wrapped, part.partition_key, part.version, part.route
