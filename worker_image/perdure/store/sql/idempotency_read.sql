-- Purpose: what is known of a key that could not be taken.
-- Run by: perdure.idempotency. Locks: none. Expected index: the primary key.
-- Zero rows: it is free by now, or has expired.
SELECT t.state, t.value, extract(epoch FROM t.expires_at - clock_timestamp())::float8 AS expires_in
  FROM perdure.idempotency_keys t
 WHERE t.scope = $1::text AND t.key = $2::text AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp())
