-- Purpose: bodies that began although their step was final. Run by: the checker.
-- Under the current fence nothing excuses it. Under an older one the worker may have lost the run between two lines,
-- unless the step was final already when it claimed the run: final under a fence before its own.
SELECT e.run, e.step_index, e.number FROM faults.effects e
 WHERE e.step_status >= 30 AND (e.run_fence = e.fence OR e.step_fence < e.fence)
