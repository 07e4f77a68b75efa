-- Purpose: note an applied migration, in its own transaction. Run by: migrate, under the migration lock.
-- Locks: the new row. Expected index: none.
INSERT INTO perdure.migrations (version, name, checksum) VALUES ($1, $2, $3)
