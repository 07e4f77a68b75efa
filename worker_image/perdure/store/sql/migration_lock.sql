-- Purpose: let one process at a time migrate this database.
-- Run by: migrate, on its own session, which keeps the lock until it closes.
-- Locks: one advisory lock. Expected index: none. Waits without limit: the other one is migrating.
SELECT pg_advisory_lock(hashtextextended('perdure.migrate', 0))
