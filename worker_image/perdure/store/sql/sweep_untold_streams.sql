-- Purpose: streams whose readers may not all have been woken, for longer than the writer's worker takes to do it.
-- Run by: every sweeper, bounded. Locks: none. Expected index: streams_untold. Zero rows: all are told of.
SELECT s.workflow_id, s.key
  FROM perdure.streams s
 WHERE s.untold_since <= now() - make_interval(secs => $2::float8)
 ORDER BY s.untold_since LIMIT $1::integer
