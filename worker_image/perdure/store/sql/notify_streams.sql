-- Purpose: hurry clients that read streams: something was written to those of these runs. Polling finds it anyway.
-- Run by: the worker whose runs wrote it, coalesced, in a transaction of its own (NOTIFY takes a lock of the whole
-- server at commit), which waits for no disk: what it tells is durable already.
-- Locks: none that lasts. Expected index: none.
SELECT set_config('synchronous_commit', 'off', true), pg_notify('perdure_streams', $1::text)
