-- Purpose: recorded steps of a run behind the index $2, in order, at most $3; with their payloads if $4. Of a run that is
-- about to be removed none.
-- Run by: clients, and workers for the calls of runs. Locks: none. Expected index: workflows_pkey, workflow_steps_pkey.
SELECT s.step_index, s.name, s.status, s.attempts, s.started_at, s.finished_at, s.wake_at,
       CASE WHEN $4::boolean THEN s.input END AS input,
       CASE WHEN $4::boolean THEN s.output END AS output,
       CASE WHEN $4::boolean THEN s.error END AS error
  FROM perdure.workflows w
  JOIN perdure.workflow_steps s ON s.workflow_id = w.id
 WHERE w.id = $1::text AND NOT w.deleted AND s.workflow_id = $1::text AND s.step_index > $2::integer
 ORDER BY s.step_index LIMIT $3::integer
