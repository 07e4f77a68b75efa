-- Purpose: the applied migrations. Run by: migrate and check. Locks: none.
-- Expected index: none, a handful of rows. Zero rows: nothing was applied yet.
SELECT version, name, checksum FROM perdure.migrations ORDER BY version
