-- Purpose: the first recorded steps of some runs, a bounded number of each.
-- Run by: the claimer, for what it has just claimed: nobody else can write these steps any more.
-- Locks: none. Expected index: workflow_steps_pkey. Zero rows: nothing was recorded.
SELECT s.workflow_id, s.step_index, s.name, s.status, s.input, s.output, s.error, s.attempts, s.attempt_errors,
       s.wake_at, extract(epoch FROM s.wake_at - clock_timestamp())::float8 AS wake_in
  FROM unnest($1::text[]) AS run(id)
 CROSS JOIN LATERAL
       (SELECT * FROM perdure.workflow_steps t
         WHERE t.workflow_id = run.id AND t.step_index > $2::integer
         ORDER BY t.step_index LIMIT $3::integer) s
 ORDER BY s.workflow_id, s.step_index
