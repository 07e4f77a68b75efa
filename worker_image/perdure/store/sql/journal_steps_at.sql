-- Purpose: which writes of one claim are on the rows, after an answer was lost.
-- Run by: the worker's journal. Locks: none. Expected index: workflow_steps_pkey. Zero rows: none of them.
SELECT s.step_index, s.seq, s.status FROM perdure.workflow_steps s
 WHERE s.workflow_id = $1::text AND s.step_index = ANY($3::integer[]) AND s.fence = $2::bigint
