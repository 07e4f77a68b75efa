-- Purpose: the queues that have ready runs, how many, and for how long the oldest has been ready. Counts stop at $1,
-- and the oldest is searched among the counted. Paused queues are left out: nothing of them can be taken.
-- Run by: the operator that leads, every few seconds, for metrics and the alerts made of them.
-- Locks: none. Expected index: workflows_ready, one look-up for each queue, then the counted entries.
-- Zero rows: nothing is ready anywhere.
WITH RECURSIVE queue(namespace, pool, name) AS (
    (SELECT w.namespace, w.pool, w.queue FROM perdure.workflows w
      WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
      ORDER BY w.namespace, w.pool, w.queue LIMIT 1)
    UNION ALL
    SELECT next.namespace, next.pool, next.queue
      FROM queue
     CROSS JOIN LATERAL (
           SELECT w.namespace, w.pool, w.queue FROM perdure.workflows w
            WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
              AND (w.namespace, w.pool, w.queue) > (queue.namespace, queue.pool, queue.name)
            ORDER BY w.namespace, w.pool, w.queue LIMIT 1) next
)
SELECT queue.namespace, queue.pool, queue.name AS queue, head.runs AS ready,
       coalesce(extract(epoch FROM clock_timestamp() - head.since), 0)::float8 AS oldest_seconds
  FROM queue
 CROSS JOIN LATERAL (
       SELECT count(*) AS runs, min(h.waiting_since) AS since
         FROM (SELECT w.waiting_since FROM perdure.workflows w
                WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
                  AND w.namespace = queue.namespace AND w.pool = queue.pool AND w.queue = queue.name
                LIMIT $1::integer) h) head
 WHERE NOT EXISTS (SELECT FROM perdure.queues q
                    WHERE q.namespace = queue.namespace AND q.name = queue.name AND q.paused)
