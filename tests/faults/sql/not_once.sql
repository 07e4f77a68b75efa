-- Purpose: steps whose own SQL and whose outcome are not both there, or are there more often than once.
-- Run by: the checker.
SELECT coalesce(s.workflow_id, o.run) AS run, coalesce(s.step_index, o.step_index) AS step_index,
       coalesce(s.status >= 30, false) AS finished, coalesce(o.times, 0) AS times
  FROM (SELECT * FROM perdure.workflow_steps WHERE name = 'f.transaction') s
  FULL JOIN (SELECT run, step_index, count(*) AS times FROM faults.once GROUP BY run, step_index) o
    ON o.run = s.workflow_id AND o.step_index = s.step_index
 WHERE coalesce(o.times, 0) <> coalesce(s.status >= 30, false)::integer
