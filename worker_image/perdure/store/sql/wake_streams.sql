-- Purpose: how long these streams are now and whether they are closed, before those that wait for them are looked for.
-- Run by: whoever tells of what was written to them. Locks: none. Expected index: streams_pkey.
-- A stream that does not come back is gone, or was told of by somebody else.
SELECT s.workflow_id, s.key, s.length, s.closed_by IS NOT NULL AS closed
  FROM unnest($1::text[], $2::text[]) AS r(run_id, key)
 CROSS JOIN LATERAL (
       SELECT i.* FROM perdure.streams i WHERE i.workflow_id = r.run_id AND i.key = r.key LIMIT 1) s
 WHERE s.untold_since IS NOT NULL
