-- Purpose: how often each attempt of each step's body has begun. Run by: the checker, at the end.
SELECT e.run, e.step_index, e.attempt, min(e.key) AS key, count(*) AS times
  FROM faults.effects e GROUP BY e.run, e.step_index, e.attempt
