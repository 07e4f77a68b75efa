-- Purpose: where the record of writes stands. Run by: the fault that waits for what comes after.
SELECT coalesce(max(number), 0) AS number FROM faults.run_writes
