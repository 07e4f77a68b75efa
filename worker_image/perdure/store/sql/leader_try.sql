-- Purpose: become the one process that acts for a name, if nobody is.
-- Run by: the operator, once a second on a session of its own, which keeps the lock until it ends.
-- Locks: one advisory lock, without waiting. Expected index: none. False: another session holds it.
-- Asked first whether this session has it already: a session may take its own lock again, and would count.
SELECT EXISTS (SELECT FROM pg_locks l
                WHERE l.locktype = 'advisory' AND l.granted AND l.pid = pg_backend_pid() AND l.objsubid = 1
                  AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended($1::text, 0))
       OR pg_try_advisory_lock(hashtextextended($1::text, 0))
