-- Purpose: ended runs whose parent may not have been woken, for longer than the worker that ended them takes to do it.
-- Run by: every sweeper, bounded. Locks: none. Expected index: workflows_untold. Zero rows: all are told.
SELECT w.id, w.parent_id
  FROM perdure.workflows w
 WHERE w.parent_id IS NOT NULL AND NOT w.parent_told AND w.status >= 50
   AND w.finished_at <= now() - make_interval(secs => $2::float8)
 ORDER BY w.finished_at LIMIT $1::integer
