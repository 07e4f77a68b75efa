-- Purpose: all who waited for this value of an event have been woken; after that. A newer value stays unannounced.
-- Run by: whoever woke them. Locks: the event. Expected index: events_pkey. Zero rows: announced before, or set anew.
UPDATE perdure.events e SET announced = true
 WHERE e.workflow_id = $1::text AND e.name = $2::text AND e.fence = $3::bigint AND e.seq = $4::bigint
   AND NOT e.announced
RETURNING e.name
