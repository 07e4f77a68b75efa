-- The recorded steps of one run, for the demo's proof. `claim` is the fence under which a step was last started: a
-- step that had ended before the worker was killed still shows the first claim, so its body was not started again.
-- Reads by primary key. No rows: the run has not started a step.
SELECT step_index AS step,
       name,
       CASE status WHEN 10 THEN 'running' WHEN 20 THEN 'retrying' WHEN 30 THEN 'succeeded' WHEN 40 THEN 'failed' END AS state,
       attempts AS failed_attempts,
       started_fence AS claim,
       to_char(started_at, 'HH24:MI:SS.MS') AS started,
       to_char(finished_at, 'HH24:MI:SS.MS') AS finished
  FROM perdure.workflow_steps
 WHERE workflow_id = :'run'
 ORDER BY step_index;
