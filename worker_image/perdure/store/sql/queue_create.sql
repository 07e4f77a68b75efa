-- Purpose: say the limits of a queue that has none yet.
-- Run by: programs ($9 empty), and whoever reads them from a resource ($9 its mark).
-- Locks: none but the new row. Expected index: queues_pkey. Zero rows: the queue has limits; nothing was written.
INSERT INTO perdure.queues AS q (namespace, name, concurrency, worker_concurrency, partition_concurrency, rate_runs,
                                 rate_seconds, paused, managed_by)
VALUES ($1::text, $2::text, $3::integer, $4::integer, $5::integer, $6::integer, $7::float8, $8::boolean, $9::text)
ON CONFLICT (namespace, name) DO NOTHING
RETURNING q.*
