-- Purpose: extend a worker's lease, and bring back every run it owns with what was asked of it (the level, not
-- the change: a lost answer costs one beat, never a cancel).
-- Run by: the worker's beater, at a third of the lease.
-- Locks: the worker's row as an update of no key: neither waits for claims nor makes them wait.
-- Expected index: workers_pkey, workflows_owned.
-- Zero rows: the worker is dead or stopped. One row without a run: it owns none.
WITH beat AS (
    UPDATE perdure.workers k
       SET lease_until = clock_timestamp() + make_interval(secs => $2::float8), beat_at = clock_timestamp()
     WHERE k.id = $1::text AND k.state IN (10, 20)
    RETURNING k.id
)
SELECT w.id, w.fence, w.cancel_mode, w.suspended,
       coalesce(w.deadline_at <= clock_timestamp() AND coalesce(w.undo, 0) = 0, false) AS deadline_passed
  FROM beat LEFT JOIN perdure.workflows w ON w.worker_id = beat.id AND w.status = 30
