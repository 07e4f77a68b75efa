-- Purpose: owners of RUNNING rows that are neither live nor draining (or not registered at all).
-- Run by: every worker's sweeper and the operator before they move runs; for ever, not once after a death (R5).
-- Locks: none. Expected index: workflows_owned, one look-up for each owner. Zero rows: nothing to move.
WITH RECURSIVE owner(id) AS (
    (SELECT w.worker_id FROM perdure.workflows w WHERE w.status = 30 ORDER BY w.worker_id LIMIT 1)
    UNION ALL
    SELECT (SELECT w.worker_id FROM perdure.workflows w
             WHERE w.status = 30 AND w.worker_id > owner.id ORDER BY w.worker_id LIMIT 1)
      FROM owner WHERE owner.id IS NOT NULL
)
SELECT owner.id FROM owner
 WHERE owner.id IS NOT NULL
   AND NOT EXISTS (SELECT FROM perdure.workers k WHERE k.id = owner.id AND k.state IN (10, 20))
 LIMIT $1::integer
