-- Purpose: let one process at a time migrate this database.
-- Run by: migrate, in a transaction of its own on a second session, which keeps the lock until it ends.
-- Locks: one advisory lock. Expected index: none. Waits without limit: the other one is migrating.
SELECT pg_advisory_xact_lock(hashtextextended('perdure.migrate', 0))
