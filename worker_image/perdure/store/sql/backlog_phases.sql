-- Purpose: how many runs of each namespace have not ended, by status. Counts stop at $1.
-- Run by: the operator, for its metrics. Locks: none.
-- Expected index: workflows_open, one look-up for each namespace and status, then the counted entries.
WITH RECURSIVE open(namespace, status) AS (
    (SELECT w.namespace, w.status FROM perdure.workflows w WHERE w.status < 50
      ORDER BY w.namespace, w.status LIMIT 1)
    UNION ALL
    SELECT next.namespace, next.status
      FROM open
     CROSS JOIN LATERAL (
           SELECT w.namespace, w.status FROM perdure.workflows w
            WHERE w.status < 50 AND (w.namespace, w.status) > (open.namespace, open.status)
            ORDER BY w.namespace, w.status LIMIT 1) next
)
SELECT open.namespace, open.status,
       (SELECT count(*) FROM (
            SELECT FROM perdure.workflows w
             WHERE w.namespace = open.namespace AND w.status = open.status AND w.status < 50
             LIMIT $1::integer) counting) AS runs
  FROM open
