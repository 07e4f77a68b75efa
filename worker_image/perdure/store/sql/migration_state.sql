-- Purpose: what is there before the first migration; the schema may have been made by an administrator.
-- Run by: migrate and check. Locks: none. Expected index: catalog only. Always one row.
SELECT to_regnamespace('perdure') IS NOT NULL AS has_schema,
       to_regclass('perdure.migrations') IS NOT NULL AS has_table
