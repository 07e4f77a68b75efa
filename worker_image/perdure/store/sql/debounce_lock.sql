-- Purpose: take hold of a debounce key: whoever else starts with it waits until this transaction is over. Says which run
-- it stands for, the given one when it is new, and whether this call came through before.
-- Run by: clients and workers, first in the transaction of a debounced start.
-- Locks: the key's row. Expected index: debounces_pkey. One row.
INSERT INTO perdure.debounces AS d (namespace, workflow, key, run_id, due_at)
VALUES ($1::text, $2::text, $3::text, $4::text, clock_timestamp())
ON CONFLICT (namespace, workflow, key) DO UPDATE SET due_at = d.due_at
RETURNING d.run_id, $5::text = ANY(d.calls) AS done
