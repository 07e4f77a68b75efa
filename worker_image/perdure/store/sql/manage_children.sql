-- Purpose: which of these children ($3, as their starts are recorded) a run has started before the index $2.
-- Run by: fork, under the lock of manage_lock. Locks: none. Expected index: workflow_steps_pkey. Zero rows: none of them.
SELECT DISTINCT s.output FROM perdure.workflow_steps s
 WHERE s.workflow_id = $1::text AND s.step_index < $2::integer AND s.name = 'perdure.start' AND s.status = 30
   AND s.output = ANY($3::text[])
