-- Purpose: the queues of a namespace that have limits, and which of these are reached now: in all, of which workers, of
-- which partitions, by the rate. At most $2 running runs of each queue are looked at.
-- Run by: the operator, to say why runs wait. Locks: none. Expected index: queues_pkey, workflows_running.
-- Zero rows: no queue has limits. A moment later it may be otherwise: claims ask for themselves.
SELECT q.name, q.paused, q.concurrency, q.worker_concurrency, q.partition_concurrency, q.rate_runs, q.rate_seconds,
       coalesce(run.runs >= q.concurrency, false) AS is_full,
       coalesce(run.workers, '{}') AS full_workers,
       coalesce(run.partitions, '{}') AS full_partitions,
       coalesce(q.tokens + greatest(0, extract(epoch FROM clock_timestamp() - q.tokens_at))::float8
                           * q.rate_runs / q.rate_seconds < 1, false) AS is_spent
  FROM perdure.queues q
  LEFT JOIN LATERAL (
       WITH head AS MATERIALIZED (
           SELECT w.worker_id, w.partition_key
             FROM perdure.workflows w
            WHERE w.namespace = q.namespace AND w.queue = q.name AND w.status = 30 LIMIT $2::integer)
       SELECT (SELECT count(*) FROM head) AS runs,
              CASE WHEN q.worker_concurrency IS NOT NULL THEN ARRAY(
                  SELECT head.worker_id FROM head GROUP BY head.worker_id
                  HAVING count(*) >= q.worker_concurrency) END AS workers,
              CASE WHEN q.partition_concurrency IS NOT NULL THEN ARRAY(
                  SELECT head.partition_key FROM head GROUP BY head.partition_key
                  HAVING count(*) >= q.partition_concurrency) END AS partitions) run
         ON coalesce(q.concurrency, q.worker_concurrency, q.partition_concurrency) IS NOT NULL
 WHERE q.namespace = $1::text
 ORDER BY q.name
