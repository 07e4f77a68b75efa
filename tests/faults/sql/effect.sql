-- Purpose: the body of a step has begun; with what the database says about run and step at this moment.
-- Run by: the body itself, through its worker's writer. Sent again unchanged it writes nothing twice.
INSERT INTO faults.effects (
    id, run, step_index, key, fence, attempt, worker, asked, run_fence, run_status, run_worker, step_status,
    step_fence)
SELECT $1::uuid, $2::text, $3::integer, $4::text, $5::bigint, $6::integer, $7::text, $8::float8,
       w.fence, w.status, w.worker_id, s.status, s.fence
  FROM (VALUES (1)) AS one
  LEFT JOIN perdure.workflows w ON w.id = $2::text
  LEFT JOIN perdure.workflow_steps s ON s.workflow_id = $2::text AND s.step_index = $3::integer
ON CONFLICT (id) DO NOTHING
