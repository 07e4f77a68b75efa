-- Purpose: how runs stand that another one waits for, and that one's count of wakes, in one snapshot: a run that ends
-- later wakes it later. `own`: it was started by the asking run, which its end wakes anyway. `deleted`: it is
-- about to be removed.
-- Run by: the worker, for the results of runs. Locks: none. Expected index: the primary keys.
-- With $3 only those that have ended. One row at least while the asking run exists; its own has no status.
SELECT w.id, w.status, p.output, p.error, w.cancel_reason, w.workflow, coalesce(w.parent_id = $1::text, false) AS own,
       w.deleted, NULL::bigint AS wake_seq
  FROM perdure.workflows w
  LEFT JOIN perdure.workflow_payloads p ON p.workflow_id = w.id AND w.status >= 50
 WHERE w.id = ANY($2::text[]) AND (w.status >= 50 OR NOT $3::boolean)
UNION ALL
SELECT w.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, w.wake_seq FROM perdure.workflows w WHERE w.id = $1::text
