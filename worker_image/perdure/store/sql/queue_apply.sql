-- Purpose: say the limits of a queue, whether or not it had some; $8 pauses or resumes it, null leaves that as it is.
-- Run by: programs ($9 empty), and whoever reads them from a resource ($9 its mark).
-- Locks: the queue's row, which claims of the queue hold while they take runs. Expected index: queues_pkey.
-- Zero rows: the queue is managed by another; nothing was written. The same again changes nothing and gives the row.
-- A changed rate keeps what the old one has left to begin with, so that saying it again and again lets nothing more
-- begin; a first one begins with a full bucket.
INSERT INTO perdure.queues AS q (namespace, name, concurrency, worker_concurrency, partition_concurrency, rate_runs,
                                 rate_seconds, paused, managed_by)
VALUES ($1::text, $2::text, $3::integer, $4::integer, $5::integer, $6::integer, $7::float8, coalesce($8::boolean, false),
        $9::text)
ON CONFLICT (namespace, name) DO UPDATE SET
    concurrency = excluded.concurrency,
    worker_concurrency = excluded.worker_concurrency,
    partition_concurrency = excluded.partition_concurrency,
    rate_runs = excluded.rate_runs,
    rate_seconds = excluded.rate_seconds,
    paused = coalesce($8::boolean, q.paused),
    tokens = CASE WHEN q.rate_runs IS NOT NULL AND excluded.rate_runs IS NOT NULL
                  THEN least(excluded.rate_runs, q.rate_runs, coalesce(q.tokens, q.rate_runs)
                             + greatest(0, extract(epoch FROM clock_timestamp() - q.tokens_at))::float8
                               * q.rate_runs / q.rate_seconds) END,
    tokens_at = clock_timestamp(),
    generation = q.generation + ((q.concurrency, q.worker_concurrency, q.partition_concurrency, q.rate_runs,
                                  q.rate_seconds, q.paused)
                                 IS DISTINCT FROM
                                 (excluded.concurrency, excluded.worker_concurrency, excluded.partition_concurrency,
                                  excluded.rate_runs, excluded.rate_seconds, coalesce($8::boolean, q.paused)))::integer,
    changed_at = CASE WHEN (q.concurrency, q.worker_concurrency, q.partition_concurrency, q.rate_runs, q.rate_seconds,
                            q.paused)
                           IS DISTINCT FROM
                           (excluded.concurrency, excluded.worker_concurrency, excluded.partition_concurrency,
                            excluded.rate_runs, excluded.rate_seconds, coalesce($8::boolean, q.paused))
                      THEN clock_timestamp() ELSE q.changed_at END
 WHERE q.managed_by = excluded.managed_by
RETURNING q.*
