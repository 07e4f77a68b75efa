-- Purpose: the waits of these runs for values of a stream that are there ($4 is its length, $5 whether it is closed) are
-- over: they have been woken and look again. One that was written since then is looked after by its writer, who looks
-- at the stream after it.
-- Run by: whoever woke them. Locks: the waits, sorted as everywhere. Expected index: stream_waits_pkey or
-- stream_waits_of. Zero rows: done.
WITH wait AS MATERIALIZED (
    SELECT v.ctid FROM perdure.stream_waits v
     WHERE v.run_id = $1::text AND v.key = $2::text AND v.workflow_id = ANY($3::text[])
       AND (v."offset" < $4::bigint OR $5::boolean)
     ORDER BY v.workflow_id, v.step_index
       FOR UPDATE
)
DELETE FROM perdure.stream_waits v
 WHERE v.ctid = ANY(ARRAY(SELECT wait.ctid FROM wait))
RETURNING v.workflow_id
