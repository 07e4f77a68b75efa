-- Purpose: all recorded steps. Run by: the checker, at the end.
SELECT s.workflow_id, s.step_index, s.name, s.status, s.output, s.attempts, s.fence, s.seq
  FROM perdure.workflow_steps s ORDER BY s.workflow_id, s.step_index
