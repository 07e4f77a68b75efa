-- Purpose: runs that somebody has claimed after they were moved from a worker of this pod. Run by: the same fault.
SELECT claimed.run
  FROM faults.run_writes moved
  JOIN faults.run_writes claimed ON claimed.run = moved.run AND claimed.number > moved.number
 WHERE moved.number > $1::bigint AND moved.old_status = 30 AND moved.old_worker LIKE $2::text || '-%'
   AND claimed.old_status = 10 AND claimed.status = 30
