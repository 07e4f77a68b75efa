-- Purpose: tell runs that something of theirs is there now: a message, a child's end, an event. $2 is the key under which
-- each may wait for it. Those that wait for it become claimable; of all the count of wakes rises, so that none parks
-- over it (R7).
-- Run by: the worker that brought it about, just after, on another connection; every sweeper, for what that did not do.
-- Locks: the runs' rows, sorted. No test of the status there: a park in flight is waited for.
-- Expected index: workflows_pkey. A run that does not come back has ended or does not exist.
-- Nobody owns a run that waits; its owner is cleared all the same, since Postgres holds the new row to its constraints
-- before it sees that the one it was made from is out of date.
WITH run AS MATERIALIZED (
    SELECT w.id, w.status, w.waiting_for
      FROM perdure.workflows w
     WHERE w.id = ANY($1::text[])
     ORDER BY w.id
       FOR NO KEY UPDATE
), told AS MATERIALIZED (
    SELECT t.id, array_agg(t.key) || '*'::text AS keys
      FROM unnest($1::text[], $2::text[]) AS t(id, key)
     GROUP BY t.id
), hears AS MATERIALIZED (
    SELECT run.id, run.status = 40 AND coalesce(run.waiting_for -> 'on' ?| told.keys, false) AS wakes
      FROM run JOIN told ON told.id = run.id
     WHERE run.status < 50
)
UPDATE perdure.workflows w
   SET wake_seq = w.wake_seq + 1,
       status = CASE WHEN h.wakes THEN 10 ELSE w.status END,
       worker_id = CASE WHEN NOT h.wakes THEN w.worker_id END,
       fence = w.fence + h.wakes::integer,
       run_at = CASE WHEN h.wakes THEN clock_timestamp() ELSE w.run_at END,
       wake_at = CASE WHEN NOT h.wakes THEN w.wake_at END,
       waiting_for = CASE WHEN NOT h.wakes THEN w.waiting_for END,
       waiting_since = CASE WHEN h.wakes THEN clock_timestamp() ELSE w.waiting_since END,
       status_due_at = CASE WHEN h.wakes THEN clock_timestamp() ELSE w.status_due_at END
  FROM hears h
 WHERE w.id = h.id
RETURNING w.id, w.namespace, w.pool, w.wake_seq, h.wakes
