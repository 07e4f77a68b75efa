-- Purpose: some of the runs that wait for an event.
-- Run by: whoever announces the event, until there are none: those that have been woken are taken out of the waits.
-- Locks: none. Expected index: event_waits_pkey. Zero rows: nobody waits any more.
SELECT DISTINCT v.workflow_id
  FROM perdure.event_waits v
 WHERE v.run_id = $1::text AND v.name = $2::text
 ORDER BY v.workflow_id LIMIT $3::integer
