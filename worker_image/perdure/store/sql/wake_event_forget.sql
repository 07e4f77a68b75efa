-- Purpose: the waits of these runs for an event are over: it is set and they have been woken. One that was written since
-- then is looked after by its writer, who looks for the event after it.
-- Run by: whoever woke them. Locks: the waits, sorted as everywhere. Expected index: event_waits_pkey or event_waits_of. Zero rows: done.
WITH wait AS MATERIALIZED (
    SELECT v.ctid FROM perdure.event_waits v
     WHERE v.run_id = $1::text AND v.name = $2::text AND v.workflow_id = ANY($3::text[])
     ORDER BY v.workflow_id, v.step_index
       FOR UPDATE
)
DELETE FROM perdure.event_waits v
 WHERE v.ctid = ANY(ARRAY(SELECT wait.ctid FROM wait))
RETURNING v.workflow_id
