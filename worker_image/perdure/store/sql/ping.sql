-- Purpose: is the other end of an idle session still there? Run by: the listener. Locks: none. One row.
SELECT 1
