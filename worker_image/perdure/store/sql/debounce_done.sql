-- Purpose: write down which run a debounce key stands for now, and that this call came through; the latest $6 calls
-- are kept.
-- Run by: clients and workers, last in the transaction that holds the key.
-- Locks: the key's row, held already. Expected index: debounces_pkey, workflows_pkey. One row.
UPDATE perdure.debounces d
   SET run_id = $4::text,
       calls = d.calls[greatest(1, cardinality(d.calls) - $6::integer + 2):] || $5::text,
       due_at = coalesce((SELECT w.wake_at FROM perdure.workflows w WHERE w.id = $4::text), clock_timestamp())
 WHERE d.namespace = $1::text AND d.workflow = $2::text AND d.key = $3::text
RETURNING d.run_id
