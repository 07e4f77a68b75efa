-- Purpose: the time, for perdure.now. Run by: the worker. Locks: none. No index. One row.
SELECT clock_timestamp()
