-- Purpose: what the key stands for was not done: whoever comes next may.
-- Run by: perdure.idempotency. Locks: the key's row. Expected index: the primary key.
-- Zero rows: it was released before, or somebody else has it.
DELETE FROM perdure.idempotency_keys t
 WHERE t.scope = $1::text AND t.key = $2::text AND t.token = $3::text AND t.state = 10
