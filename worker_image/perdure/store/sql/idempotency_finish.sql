-- Purpose: what the key stands for is done; keep its value, if any, for a time or for ever.
-- Run by: perdure.idempotency. Resent unchanged it answers the same.
-- Locks: the key's row. Expected index: the primary key. Zero rows: somebody else has it.
UPDATE perdure.idempotency_keys t
   SET state = 20, value = $4::text, expires_at = clock_timestamp() + make_interval(secs => $5::float8)
 WHERE t.scope = $1::text AND t.key = $2::text AND t.token = $3::text
RETURNING t.key
