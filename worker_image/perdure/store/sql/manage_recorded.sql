-- Purpose: whether a step of a run is recorded already: by a copy of this call whose answer was lost.
-- Run by: workers for the calls of runs, under the lock of manage_lock. Locks: none. Expected index: workflow_steps_pkey.
-- Zero rows: it is not.
SELECT s.output FROM perdure.workflow_steps s
 WHERE s.workflow_id = $1::text AND s.step_index = $2::integer AND s.status >= 30
