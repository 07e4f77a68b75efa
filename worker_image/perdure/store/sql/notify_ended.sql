-- Purpose: hurry clients that wait for runs: these have ended. Polling finds them anyway.
-- Run by: the worker that ended them, coalesced, in a transaction of its own (NOTIFY takes a lock of the whole server
-- at commit), which waits for no disk: what it tells is durable already.
-- Locks: none that lasts. Expected index: none.
SELECT set_config('synchronous_commit', 'off', true), pg_notify('perdure_ended', $1::text)
