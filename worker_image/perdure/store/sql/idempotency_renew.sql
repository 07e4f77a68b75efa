-- Purpose: the holder of a key is alive: its lease counts from now.
-- Run by: perdure.idempotency, at a third of the lease. Also after the lease ran out, while nobody else took the key.
-- Locks: the key's row. Expected index: the primary key. Zero rows: somebody else has it.
UPDATE perdure.idempotency_keys t
   SET expires_at = clock_timestamp() + make_interval(secs => $4::float8)
 WHERE t.scope = $1::text AND t.key = $2::text AND t.token = $3::text AND t.state = 10
RETURNING t.key
