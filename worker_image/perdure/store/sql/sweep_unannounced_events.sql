-- Purpose: events whose waiters may not all have been woken, for longer than the setter's worker takes to do it.
-- Run by: every sweeper, bounded. Locks: none. Expected index: events_unannounced. Zero rows: all are announced.
SELECT e.workflow_id, e.name, e.fence, e.seq
  FROM perdure.events e
 WHERE NOT e.announced AND e.set_at <= now() - make_interval(secs => $2::float8)
 ORDER BY e.set_at LIMIT $1::integer
