-- Purpose: re-open the failed steps that ended the last attempt: those after whose failure no step was started.
-- A failure that the body caught was followed by another step and stays an outcome. Earlier errors are kept.
-- Run by: the sweep of retries, under the locks of sweep_retry_lock.
-- Locks: the step rows. Expected index: workflow_steps_pkey. Zero rows: the body failed outside its steps.
UPDATE perdure.workflow_steps s
   SET status = 20,
       attempts = 0,
       output = NULL,
       error = NULL,
       attempt_errors = coalesce(s.attempt_errors, '[' || s.error || ']'),
       finished_at = NULL,
       wake_at = NULL
 WHERE s.workflow_id = ANY($1::text[])
   AND s.status = 40
   AND NOT EXISTS (
       SELECT FROM perdure.workflow_steps later
        WHERE later.workflow_id = s.workflow_id
          AND (later.started_fence, later.started_seq) > (s.fence, s.seq))
