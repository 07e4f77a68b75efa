-- Purpose: how much there is to do in one pool, by version: the input of scaling and of retiring versions.
-- Runs of a queue that is paused, and as many as its limits do not let run now, count as waiting: no worker more would
-- take them. Of a rate that is what it lets begin within the next $4 seconds. Of partitions at most $5 are looked at for
-- each queue and version: where more have ready runs, their limit holds back none of these.
-- Run by: the operator, every few seconds for each pool. Each count stops at $3, and the oldest ready run is
-- searched among the counted, so that a huge backlog costs no more than a large one.
-- Locks: none. Expected index: workflows_ready, workflows_suspended, workflows_open, one look-up for each queue,
-- status and version, then the counted entries. Zero rows: nothing is open.
WITH RECURSIVE ready_key(queue, version) AS (
    (SELECT w.queue, coalesce(w.version, '') FROM perdure.workflows w
      WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
        AND w.namespace = $1::text AND w.pool = $2::text
      ORDER BY w.queue, coalesce(w.version, '') LIMIT 1)
    UNION ALL
    SELECT next.queue, next.version
      FROM ready_key k
     CROSS JOIN LATERAL (
           SELECT w.queue, coalesce(w.version, '') AS version FROM perdure.workflows w
            WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
              AND w.namespace = $1::text AND w.pool = $2::text
              AND (w.queue, coalesce(w.version, '')) > (k.queue, k.version)
            ORDER BY w.queue, coalesce(w.version, '') LIMIT 1) next
), suspended_key(version) AS (
    (SELECT coalesce(w.version, '') FROM perdure.workflows w
      WHERE w.status = 10 AND w.suspended AND w.cancel_mode IS NULL AND w.namespace = $1::text AND w.pool = $2::text
      ORDER BY coalesce(w.version, '') LIMIT 1)
    UNION ALL
    SELECT next.version
      FROM suspended_key k
     CROSS JOIN LATERAL (
           SELECT coalesce(w.version, '') AS version FROM perdure.workflows w
            WHERE w.status = 10 AND w.suspended AND w.cancel_mode IS NULL
              AND w.namespace = $1::text AND w.pool = $2::text AND coalesce(w.version, '') > k.version
            ORDER BY coalesce(w.version, '') LIMIT 1) next
), open_key(status, version) AS (
    SELECT s.status, first.version
      FROM (VALUES (20::smallint), (30::smallint), (40::smallint)) s(status)
     CROSS JOIN LATERAL (
           SELECT coalesce(w.version, '') AS version FROM perdure.workflows w
            WHERE w.status IN (20, 30, 40) AND w.status = s.status AND w.namespace = $1::text AND w.pool = $2::text
            ORDER BY coalesce(w.version, '') LIMIT 1) first
    UNION ALL
    SELECT k.status, next.version
      FROM open_key k
     CROSS JOIN LATERAL (
           SELECT coalesce(w.version, '') AS version FROM perdure.workflows w
            WHERE w.status IN (20, 30, 40) AND w.status = k.status AND w.namespace = $1::text AND w.pool = $2::text
              AND coalesce(w.version, '') > k.version
            ORDER BY coalesce(w.version, '') LIMIT 1) next
), ready AS MATERIALIZED (
    SELECT k.version, head.runs, head.since, coalesce(room.runs, head.runs) AS room
      FROM ready_key k
     CROSS JOIN LATERAL (
           SELECT count(*) AS runs, min(h.waiting_since) AS since
             FROM (SELECT w.waiting_since FROM perdure.workflows w
                    WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
                      AND w.namespace = $1::text AND w.pool = $2::text AND w.queue = k.queue
                      AND coalesce(w.version, '') = k.version
                    LIMIT $3::integer) h) head
      LEFT JOIN perdure.queues q ON q.namespace = $1::text AND q.name = k.queue
     CROSS JOIN LATERAL (
           WITH RECURSIVE part(route, key) AS (
               (SELECT w.route, w.partition_key FROM perdure.workflows w
                 WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
                   AND w.namespace = $1::text AND w.pool = $2::text AND w.queue = k.queue
                   AND coalesce(w.version, '') = k.version AND q.partition_concurrency IS NOT NULL AND NOT q.paused
                 ORDER BY w.route, w.partition_key LIMIT 1)
               UNION ALL
               SELECT next.route, next.key
                 FROM part
                CROSS JOIN LATERAL (
                      SELECT w.route, w.partition_key AS key FROM perdure.workflows w
                       WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
                         AND w.namespace = $1::text AND w.pool = $2::text AND w.queue = k.queue
                         AND coalesce(w.version, '') = k.version
                         AND (w.route, w.partition_key) > (part.route, part.key)
                       ORDER BY w.route, w.partition_key LIMIT 1) next
           ), share AS (
               SELECT least(sum(found.ready), q.partition_concurrency - found.running) AS runs, count(*) AS parts
                 FROM (SELECT part.key,
                              (SELECT count(*)
                                 FROM (SELECT FROM perdure.workflows w
                                        WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
                                          AND w.namespace = $1::text AND w.pool = $2::text AND w.queue = k.queue
                                          AND coalesce(w.version, '') = k.version
                                          AND w.route = part.route AND w.partition_key = part.key
                                        LIMIT q.partition_concurrency) h) AS ready,
                              (SELECT count(*)
                                 FROM (SELECT FROM perdure.workflows w
                                        WHERE w.namespace = $1::text AND w.queue = k.queue AND w.status = 30
                                          AND w.partition_key = part.key
                                        LIMIT q.partition_concurrency) h) AS running
                         FROM (SELECT part.route, part.key FROM part LIMIT $5::integer) part) found
                GROUP BY found.key, found.running
           )
           SELECT CASE WHEN q.paused THEN 0 ELSE least(
                       CASE WHEN q.concurrency IS NOT NULL THEN greatest(0, q.concurrency - (
                           SELECT count(*)
                             FROM (SELECT FROM perdure.workflows w
                                    WHERE w.namespace = $1::text AND w.queue = k.queue AND w.status = 30
                                    LIMIT q.concurrency) running)) END,
                       CASE WHEN q.partition_concurrency IS NOT NULL THEN (
                           SELECT sum(share.runs) FROM share HAVING sum(share.parts) < $5::integer) END,
                       CASE WHEN q.rate_runs IS NOT NULL AND k.version = '' THEN floor(
                           least(q.rate_runs, coalesce(q.tokens, q.rate_runs)
                                 + greatest(0, extract(epoch FROM clock_timestamp() - q.tokens_at))::float8
                                   * q.rate_runs / q.rate_seconds)
                           + $4::float8 * q.rate_runs / q.rate_seconds) END) END::bigint AS runs) room
), counted AS (
    SELECT ready.version, 'ready' AS what, least(ready.runs, ready.room) AS runs,
           CASE WHEN ready.room > 0 THEN ready.since END AS since
      FROM ready
    UNION ALL
    SELECT ready.version, 'waiting', ready.runs - ready.room, NULL
      FROM ready
     WHERE ready.room < ready.runs
    UNION ALL
    SELECT k.version, 'waiting', head.runs, NULL
      FROM suspended_key k
     CROSS JOIN LATERAL (
           SELECT count(*) AS runs
             FROM (SELECT FROM perdure.workflows w
                    WHERE w.status = 10 AND w.suspended AND w.cancel_mode IS NULL
                      AND w.namespace = $1::text AND w.pool = $2::text AND coalesce(w.version, '') = k.version
                    LIMIT $3::integer) h) head
    UNION ALL
    SELECT k.version, CASE k.status WHEN 30 THEN 'running' ELSE 'waiting' END, head.runs, NULL
      FROM open_key k
     CROSS JOIN LATERAL (
           SELECT count(*) AS runs
             FROM (SELECT FROM perdure.workflows w
                    WHERE w.status IN (20, 30, 40) AND w.status = k.status
                      AND w.namespace = $1::text AND w.pool = $2::text AND coalesce(w.version, '') = k.version
                    LIMIT $3::integer) h) head
)
SELECT nullif(c.version, '') AS version,
       coalesce(sum(c.runs) FILTER (WHERE c.what = 'ready'), 0)::bigint AS ready,
       coalesce(sum(c.runs) FILTER (WHERE c.what = 'running'), 0)::bigint AS running,
       coalesce(sum(c.runs) FILTER (WHERE c.what = 'waiting'), 0)::bigint AS waiting,
       coalesce(extract(epoch FROM clock_timestamp() - min(c.since)), 0)::float8 AS oldest_ready_seconds
  FROM counted c
 GROUP BY c.version
 ORDER BY c.version
