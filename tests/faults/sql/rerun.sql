-- Purpose: bodies that began although their step was final. Run by: the checker.
-- Under the current fence nothing excuses it, but for the loser of a race (45): its body may have begun before it lost
-- and have come to tell of it after ($1: the time of day less the clock that `asked` is of, which drift apart a little).
-- Under an older one the worker may have lost the run between two lines, unless the step was final already when it
-- claimed the run: final under a fence before its own.
SELECT e.run, e.step_index, e.number FROM faults.effects e
 WHERE e.step_status >= 30 AND (e.run_fence = e.fence OR e.step_fence < e.fence)
   AND NOT (e.step_status = 45 AND e.step_fence = e.fence AND EXISTS (
            SELECT FROM faults.step_writes s
             WHERE s.run = e.run AND s.step_index = e.step_index AND s.status = 45 AND s.fence = e.fence
               AND to_timestamp(e.asked + $1::float8) < s.at + interval '20 milliseconds'))
