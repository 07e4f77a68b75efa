-- Purpose: what a run that undoes its steps has to do, in this order: a row for each step that is undone, with what it has
-- returned, the step that undoes it and what that one is given beside it.
-- Run by: workers, once they have begun with it or take such a run up again. Locks: none.
-- Expected index: the primary keys. Zero rows: the run undoes nothing.
WITH record AS MATERIALIZED (
    -- By itself, as no other step's output is such a list.
    SELECT w.id, w.undo_at, w.undo = 2 AS failed, s.input, s.output
      FROM perdure.workflows w
      JOIN perdure.workflow_steps s ON s.workflow_id = w.id AND s.step_index = w.undo_at
     WHERE w.id = $1::text
)
SELECT record.undo_at, record.failed, record.input AS cause, s.step_index, s.name AS step, s.output, u.name, u.input
  FROM record
 CROSS JOIN LATERAL jsonb_array_elements_text(record.output::jsonb) WITH ORDINALITY AS part(step_index, place)
  JOIN perdure.workflow_steps s ON s.workflow_id = record.id AND s.step_index = part.step_index::integer
  JOIN perdure.undos u ON u.workflow_id = record.id AND u.step_index = s.step_index
 ORDER BY part.place
