-- Purpose: a worker has given back everything and ends. What is found under its name later counts as no recovery.
-- Run by: the worker as its last statement. Locks: its row. Expected index: workers_pkey.
-- Zero rows: it was marked dead before.
UPDATE perdure.workers SET state = 30, ended_at = clock_timestamp() WHERE id = $1::text AND state IN (10, 20) RETURNING id
