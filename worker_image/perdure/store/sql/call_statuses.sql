-- Purpose: how runs stand that another one waits for, without what came of them, and that one's count of wakes, in one
-- snapshot: a run that ends later wakes it later. One question, however many runs. `own`: it was started by the asking
-- run, which its end wakes anyway.
-- Run by: the worker, for perdure.select_workflow and its like. Locks: none. Expected index: workflows_pkey.
-- One row at least while the asking run exists; its own has no status. A run that does not come back does not exist.
SELECT w.id, w.status, coalesce(w.parent_id = $1::text, false) AS own, NULL::bigint AS wake_seq
  FROM perdure.workflows w
 WHERE w.id = ANY($2::text[])
UNION ALL
SELECT w.id, NULL, NULL, w.wake_seq FROM perdure.workflows w WHERE w.id = $1::text
