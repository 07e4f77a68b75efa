-- Purpose: whether this session still holds the lock of a name.
-- Run by: the operator that leads, every few seconds, on the session that took the lock.
-- Locks: none. Expected index: none (a view of shared memory). False: it does not.
SELECT EXISTS (SELECT FROM pg_locks l
                WHERE l.locktype = 'advisory' AND l.granted AND l.pid = pg_backend_pid() AND l.objsubid = 1
                  AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended($1::text, 0))
