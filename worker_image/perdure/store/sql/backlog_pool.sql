-- Purpose: how much there is to do in one pool, by version: the input of scaling and of retiring versions.
-- Run by: the operator, every few seconds for each pool. Counts stop at $3 a version, status and queue, and the
-- oldest ready run is searched among those, so that a huge backlog costs no more than a large one.
-- Locks: none. Expected index: workflows_open and workflows_ready, one look-up for each version and queue, then
-- the counted entries. Zero rows: nothing is open.
WITH RECURSIVE open(status, version) AS (
    SELECT s.status,
           (SELECT coalesce(w.version, '') FROM perdure.workflows w
             WHERE w.namespace = $1::text AND w.status = s.status AND w.status < 50 AND w.pool = $2::text
             ORDER BY coalesce(w.version, '') LIMIT 1)
      FROM (VALUES (10::smallint), (20::smallint), (30::smallint), (40::smallint)) s(status)
    UNION ALL
    SELECT open.status,
           (SELECT coalesce(w.version, '') FROM perdure.workflows w
             WHERE w.namespace = $1::text AND w.status = open.status AND w.status < 50 AND w.pool = $2::text
               AND coalesce(w.version, '') > open.version
             ORDER BY coalesce(w.version, '') LIMIT 1)
      FROM open WHERE open.version IS NOT NULL
), counted AS (
    SELECT open.version, open.status,
           (SELECT count(*) FROM (
                SELECT FROM perdure.workflows w
                 WHERE w.namespace = $1::text AND w.status = open.status AND w.status < 50 AND w.pool = $2::text
                   AND coalesce(w.version, '') = open.version
                 LIMIT $3::integer) counting) AS runs
      FROM open WHERE open.version IS NOT NULL
), queue(name) AS (
    (SELECT w.queue FROM perdure.workflows w
      WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
        AND w.namespace = $1::text AND w.pool = $2::text
      ORDER BY w.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT w.queue FROM perdure.workflows w
             WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
               AND w.namespace = $1::text AND w.pool = $2::text AND w.queue > queue.name
             ORDER BY w.queue LIMIT 1)
      FROM queue WHERE queue.name IS NOT NULL
), ready AS (
    SELECT c.version, sum(head.runs)::bigint AS runs, min(head.since) AS since
      FROM counted c
     CROSS JOIN queue
     CROSS JOIN LATERAL (
           SELECT count(*) AS runs, min(h.waiting_since) AS since
             FROM (SELECT w.waiting_since FROM perdure.workflows w
                    WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
                      AND w.namespace = $1::text AND w.pool = $2::text AND w.queue = queue.name
                      AND coalesce(w.version, '') = c.version
                    ORDER BY w.priority, w.run_at, w.id LIMIT $3::integer) h) head
     WHERE c.status = 10 AND queue.name IS NOT NULL
     GROUP BY c.version
)
SELECT nullif(c.version, '') AS version,
       coalesce(max(r.runs), 0) AS ready,
       coalesce(sum(c.runs) FILTER (WHERE c.status = 30), 0)::bigint AS running,
       (coalesce(sum(c.runs) FILTER (WHERE c.status IN (20, 40)), 0)
        + greatest(coalesce(sum(c.runs) FILTER (WHERE c.status = 10), 0) - coalesce(max(r.runs), 0), 0))::bigint AS waiting,
       coalesce(extract(epoch FROM clock_timestamp() - min(r.since)), 0)::float8 AS oldest_ready_seconds
  FROM counted c LEFT JOIN ready r ON r.version = c.version
 GROUP BY c.version
 ORDER BY c.version
