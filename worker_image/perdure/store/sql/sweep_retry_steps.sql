-- Purpose: re-open the failed steps that ended the last attempt: those after whose failure no step was started.
-- A failure that the body caught was followed by another step and stays an outcome. Earlier errors are kept.
-- A select is recorded after its branches and starts nothing. Where it is the last that happened its record goes, and
-- the branches that lost: they race again, unless its winner did not fail, which then has won once more.
-- Run by: the sweep of retries, under the locks of sweep_retry_lock.
-- Locks: the step rows. Expected index: workflow_steps_pkey. Zero rows: the body failed outside its steps.
WITH last AS MATERIALIZED (
    SELECT s.workflow_id, s.step_index, s.status
      FROM perdure.workflow_steps s
     WHERE s.workflow_id = ANY($1::text[])
       AND (s.status >= 40 OR s.name = 'perdure.select')
       AND NOT EXISTS (
           SELECT FROM perdure.workflow_steps later
            WHERE later.workflow_id = s.workflow_id
              AND later.name <> 'perdure.select'
              AND (later.started_fence, later.started_seq) > (s.fence, s.seq))
), raced AS (
    DELETE FROM perdure.workflow_steps s
     USING last
     WHERE s.workflow_id = last.workflow_id AND s.step_index = last.step_index AND last.status <> 40
)
UPDATE perdure.workflow_steps s
   SET status = 20,
       attempts = 0,
       output = NULL,
       error = NULL,
       attempt_errors = coalesce(s.attempt_errors, '[' || s.error || ']'),
       finished_at = NULL,
       wake_at = NULL
  FROM last
 WHERE s.workflow_id = last.workflow_id AND s.step_index = last.step_index AND last.status = 40
