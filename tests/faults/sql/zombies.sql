-- Purpose: writes that nobody was entitled to. Run by: the checker.
SELECT z.run, 'step ' || z.step_index AS what, z.number FROM faults.zombie_step_writes z
UNION ALL
SELECT z.run, 'run' AS what, z.number FROM faults.zombie_run_writes z
