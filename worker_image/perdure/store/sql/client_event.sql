-- Purpose: the value that a run has published under a name.
-- Run by: clients. Locks: none. Expected index: events_pkey. Zero rows: it is not set.
SELECT e.value FROM perdure.events e WHERE e.workflow_id = $1::text AND e.name = $2::text
