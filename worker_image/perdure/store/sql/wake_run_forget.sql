-- Purpose: these waits ($1 for the run, $2 of the run, as written by the call $3, $4) are over: the run has ended and
-- who waited has been woken. One that was written anew since then is another wait: its writer has looked after it.
-- Run by: whoever woke them. Locks: the waits, sorted as everywhere. Expected index: run_waits_pkey or run_waits_of.
-- Zero rows: done.
WITH wait AS MATERIALIZED (
    SELECT v.ctid
      FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS r(run_id, waiter, fence, seq)
      JOIN perdure.run_waits v
        ON v.run_id = r.run_id AND v.workflow_id = r.waiter AND v.fence = r.fence AND v.seq = r.seq
     ORDER BY v.run_id, v.workflow_id
       FOR UPDATE OF v
)
DELETE FROM perdure.run_waits v
 WHERE v.ctid = ANY(ARRAY(SELECT wait.ctid FROM wait))
RETURNING v.workflow_id
