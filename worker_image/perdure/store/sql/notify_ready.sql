-- Purpose: hurry the workers of a pool: runs became ready. Polling finds them anyway.
-- Run by: whoever made them ready, coalesced, in a transaction of its own (NOTIFY takes a lock of the whole
-- server at commit), which waits for no disk: what it tells is durable already.
-- Locks: none that lasts. Expected index: none.
SELECT set_config('synchronous_commit', 'off', true), pg_notify('perdure_ready', $1::text)
