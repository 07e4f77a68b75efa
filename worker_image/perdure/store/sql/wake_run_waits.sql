-- Purpose: some of the waits of other runs for the ends of these runs.
-- Run by: whoever wakes them, until there are none: those that have been woken are taken out.
-- Locks: none. Expected index: run_waits_pkey. Zero rows: nobody waits any more.
SELECT v.run_id, v.workflow_id, v.fence, v.seq
  FROM unnest($1::text[]) AS r(run_id)
 CROSS JOIN LATERAL (
       SELECT w.* FROM perdure.run_waits w WHERE w.run_id = r.run_id
        ORDER BY w.workflow_id LIMIT $2::integer) v
 LIMIT $2::integer
