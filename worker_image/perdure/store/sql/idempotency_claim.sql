-- Purpose: hold a key for the time of a lease, to do what it stands for.
-- Run by: perdure.idempotency. Resent unchanged it answers the same.
-- Locks: the key's row, or its place in the index: two at once wait for each other. Expected index: the primary key.
-- Zero rows: it is done already, or somebody else holds it (idempotency_read says which).
INSERT INTO perdure.idempotency_keys AS t (scope, key, state, token, expires_at)
VALUES ($1::text, $2::text, 10, $3::text, clock_timestamp() + make_interval(secs => $4::float8))
ON CONFLICT (scope, key) DO UPDATE SET
    state = 10,
    token = excluded.token,
    value = NULL,
    expires_at = excluded.expires_at,
    created_at = excluded.created_at
 WHERE t.expires_at <= clock_timestamp() OR t.token = excluded.token AND t.state = 10
RETURNING t.key
