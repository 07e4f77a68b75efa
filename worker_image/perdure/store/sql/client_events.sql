-- Purpose: the values that runs have published under names, for many who ask at once.
-- Run by: clients, once a tick. Locks: none. Expected index: events_pkey. One that does not come back is not set.
SELECT e.workflow_id, e.name, e.value
  FROM unnest($1::text[], $2::text[]) AS r(run_id, name)
  JOIN perdure.events e ON e.workflow_id = r.run_id AND e.name = r.name
