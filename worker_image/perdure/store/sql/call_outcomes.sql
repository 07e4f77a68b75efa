-- Purpose: what is recorded of calls whose answer was lost; asked after they were sent again, so their first copies are
-- over. Run by: the worker's journal. Locks: none. Expected index: workflow_steps_pkey. Zero rows: nothing is.
SELECT s.workflow_id AS id, s.seq, s.status, s.output
  FROM unnest($1::text[], $2::bigint[], $3::integer[]) AS r(id, fence, step_index)
  JOIN perdure.workflow_steps s ON s.workflow_id = r.id AND s.step_index = r.step_index AND s.fence = r.fence
