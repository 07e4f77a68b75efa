-- Purpose: a worker takes no further run (it still beats and settles).
-- Run by: the worker at SIGTERM. Locks: its row. Expected index: workers_pkey.
-- Zero rows: it is not live any more.
UPDATE perdure.workers SET state = 20 WHERE id = $1::text AND state = 10 RETURNING id
