-- Purpose: how many connections this server lets in for roles that are no superusers.
-- Run by: the operator, with each look at a pool. Locks: none. Expected index: none. Always one row.
SELECT current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer AS most
