-- Purpose: remove keys that have expired. A holder that is only late keeps its key until somebody else takes it, so
-- that one that is renewed or finished a little after its lease is not lost for nothing.
-- Run by: every worker's sweeper, bounded. Locks: the rows, those of others skipped.
-- Expected index: idempotency_keys_expired. Zero rows: none has expired.
WITH expired AS MATERIALIZED (
    SELECT t.scope, t.key FROM perdure.idempotency_keys t
     WHERE t.expires_at <= now() AND (t.state = 20 OR t.expires_at <= now() - interval '1 hour')
     ORDER BY t.expires_at LIMIT $1::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM perdure.idempotency_keys t USING expired WHERE t.scope = expired.scope AND t.key = expired.key
