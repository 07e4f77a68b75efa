-- Purpose: have the workers that end these runs wake who waits for that at once; the sweep would do it a second later.
-- Run by: the worker, for a run that waits, after its wait is written: a foreign row is none for that statement (R15).
-- Locks: the rows of those that have not ended, for a moment; those that others hold are skipped, and the sweep does it.
-- Expected index: workflows_pkey. Zero rows: all have ended, are locked, or it was asked before. Losing it in a crash
-- costs that second, so it waits for no disk.
WITH open AS MATERIALIZED (
    SELECT w.id
      FROM set_config('synchronous_commit', 'off', true), perdure.workflows w
     WHERE w.id = ANY($1::text[]) AND w.status < 50 AND NOT w.waited
     ORDER BY w.id
       FOR NO KEY UPDATE OF w SKIP LOCKED
)
UPDATE perdure.workflows w SET waited = true FROM open WHERE w.id = open.id RETURNING w.id
