-- Purpose: take a key for good, before what it stands for is done.
-- Run by: perdure.idempotency.once. Resent unchanged it answers the same.
-- Locks: the key's row, or its place in the index: two at once wait for each other. Expected index: the primary key.
-- Zero rows: somebody else has it.
INSERT INTO perdure.idempotency_keys AS t (scope, key, state, token, expires_at)
VALUES ($1::text, $2::text, 20, $3::text, clock_timestamp() + make_interval(secs => $4::float8))
ON CONFLICT (scope, key) DO UPDATE SET
    state = 20,
    token = excluded.token,
    value = NULL,
    expires_at = excluded.expires_at,
    created_at = excluded.created_at
 WHERE t.expires_at <= clock_timestamp() OR t.token = excluded.token
RETURNING t.key
