-- Purpose: how many runs of each namespace have not ended, by status. Each count stops at $1.
-- Run by: the operator, for its metrics. Locks: none.
-- Expected index: workflows_ready, workflows_suspended, workflows_open, one look-up for each namespace and status,
-- then the counted entries. Zero rows: nothing is open.
WITH RECURSIVE ready_key(namespace) AS (
    (SELECT w.namespace FROM perdure.workflows w
      WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL) ORDER BY w.namespace LIMIT 1)
    UNION ALL
    SELECT next.namespace
      FROM ready_key k
     CROSS JOIN LATERAL (
           SELECT w.namespace FROM perdure.workflows w
            WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL) AND w.namespace > k.namespace
            ORDER BY w.namespace LIMIT 1) next
), suspended_key(namespace) AS (
    (SELECT w.namespace FROM perdure.workflows w
      WHERE w.status = 10 AND w.suspended AND w.cancel_mode IS NULL ORDER BY w.namespace LIMIT 1)
    UNION ALL
    SELECT next.namespace
      FROM suspended_key k
     CROSS JOIN LATERAL (
           SELECT w.namespace FROM perdure.workflows w
            WHERE w.status = 10 AND w.suspended AND w.cancel_mode IS NULL AND w.namespace > k.namespace
            ORDER BY w.namespace LIMIT 1) next
), open_key(namespace, status) AS (
    (SELECT w.namespace, w.status FROM perdure.workflows w WHERE w.status IN (20, 30, 40)
      ORDER BY w.namespace, w.status LIMIT 1)
    UNION ALL
    SELECT next.namespace, next.status
      FROM open_key k
     CROSS JOIN LATERAL (
           SELECT w.namespace, w.status FROM perdure.workflows w
            WHERE w.status IN (20, 30, 40) AND (w.namespace, w.status) > (k.namespace, k.status)
            ORDER BY w.namespace, w.status LIMIT 1) next
), counted AS (
    SELECT k.namespace, 10::smallint AS status, head.runs
      FROM ready_key k
     CROSS JOIN LATERAL (
           SELECT count(*) AS runs
             FROM (SELECT FROM perdure.workflows w
                    WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL) AND w.namespace = k.namespace
                    LIMIT $1::integer) h) head
    UNION ALL
    SELECT k.namespace, 10::smallint, head.runs
      FROM suspended_key k
     CROSS JOIN LATERAL (
           SELECT count(*) AS runs
             FROM (SELECT FROM perdure.workflows w
                    WHERE w.status = 10 AND w.suspended AND w.cancel_mode IS NULL AND w.namespace = k.namespace
                    LIMIT $1::integer) h) head
    UNION ALL
    SELECT k.namespace, k.status, head.runs
      FROM open_key k
     CROSS JOIN LATERAL (
           SELECT count(*) AS runs
             FROM (SELECT FROM perdure.workflows w
                    WHERE w.status IN (20, 30, 40) AND w.namespace = k.namespace AND w.status = k.status
                    LIMIT $1::integer) h) head
)
SELECT c.namespace, c.status, least(sum(c.runs), $1::integer)::bigint AS runs
  FROM counted c
 GROUP BY c.namespace, c.status
 ORDER BY c.namespace, c.status
