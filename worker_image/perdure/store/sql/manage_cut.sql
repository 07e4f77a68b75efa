-- Purpose: where the recorded steps of a run may be cut: the last one, the last that failed, the first of a name.
-- Run by: fork and rewind, under the lock of manage_lock. Locks: none. Expected index: workflow_steps_pkey.
-- One row, all null without a step.
SELECT max(s.step_index) AS last,
       max(s.step_index) FILTER (WHERE s.status = 40) AS failed,
       min(s.step_index) FILTER (WHERE s.name = $2::text) AS named
  FROM perdure.workflow_steps s
 WHERE s.workflow_id = $1::text
