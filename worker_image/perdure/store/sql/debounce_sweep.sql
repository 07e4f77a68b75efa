-- Purpose: forget debounce keys whose run became claimable more than $2 seconds ago, up to $1 of them. One whose run is
-- still delayed, because nobody has woken it, stays.
-- Run by: every worker's sweeper, seldom. Locks: the removed rows, those of others skipped.
-- Expected index: debounces_due, debounces_pkey, workflows_pkey. Zero rows: nothing is that old.
WITH old AS MATERIALIZED (
    SELECT d.namespace, d.workflow, d.key FROM perdure.debounces d
     WHERE d.due_at < now() - make_interval(secs => $2::float8)
       AND NOT EXISTS (SELECT FROM perdure.workflows w
                        WHERE w.id = d.run_id AND w.status + 0 = 20 AND w.started_at IS NULL)
     ORDER BY d.due_at LIMIT $1::integer
       FOR UPDATE SKIP LOCKED
)
DELETE FROM perdure.debounces d
 USING old
 WHERE d.namespace = old.namespace AND d.workflow = old.workflow AND d.key = old.key
RETURNING d.key
