-- Purpose: of runs that undo their steps, have what failed of that done again, with all its attempts. Earlier errors stay.
-- Run by: resume, under the locks of manage_lock. Locks: the step rows. Expected index: the primary keys.
-- Zero rows: nothing of it has failed.
UPDATE perdure.workflow_steps s
   SET status = 20,
       attempts = 0,
       error = NULL,
       attempt_errors = coalesce(s.attempt_errors, '[' || s.error || ']'),
       finished_at = NULL,
       wake_at = NULL
  FROM perdure.workflows w
 WHERE w.id = ANY($1::text[]) AND w.undo >= 2
   AND s.workflow_id = w.id AND s.step_index > w.undo_at AND s.status = 40
RETURNING s.workflow_id
