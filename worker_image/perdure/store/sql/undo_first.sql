-- Purpose: the first of the steps that a run has undone, or undoes.
-- Run by: rewind, fork, and starts that run again what has failed, under the lock of the run. Locks: none.
-- Expected index: the primary keys. Zero rows: the run undoes nothing. `undo_at`: the step that says what is undone.
WITH record AS MATERIALIZED (
    SELECT w.undo_at, s.output
      FROM perdure.workflows w
      JOIN perdure.workflow_steps s ON s.workflow_id = w.id AND s.step_index = w.undo_at
     WHERE w.id = $1::text
)
SELECT record.undo_at, (SELECT min(part::integer) FROM jsonb_array_elements_text(record.output::jsonb) part) AS first
  FROM record
