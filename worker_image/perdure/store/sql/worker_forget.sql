-- Purpose: remove workers that ended long ago and own nothing.
-- Run by: the operator's clean-up, bounded. Locks: the removed rows.
-- Expected index: workers_ended, workflows_owned. Zero rows: none is old enough.
DELETE FROM perdure.workers k
 USING (SELECT o.id FROM perdure.workers o
         WHERE o.state IN (30, 40) AND o.ended_at < now() - make_interval(secs => $1::float8)
           AND NOT EXISTS (SELECT FROM perdure.workflows w WHERE w.status = 30 AND w.worker_id = o.id)
         ORDER BY o.ended_at LIMIT $2::integer) old
 WHERE k.id = old.id
RETURNING k.id
