-- Purpose: some of the runs that wait for a value of a stream that is there now ($3 is the stream's length), or for any
-- value when it is closed ($4).
-- Run by: whoever tells of what was written to it, until there are none: those that have been woken are taken out of
-- the waits. Locks: none. Expected index: stream_waits_pkey. Zero rows: nobody waits for what is there.
SELECT DISTINCT v.workflow_id
  FROM perdure.stream_waits v
 WHERE v.run_id = $1::text AND v.key = $2::text AND (v."offset" < $3::bigint OR $4::boolean)
 ORDER BY v.workflow_id LIMIT $5::integer
