-- Purpose: the runs of schedules that have not ended, of each at most $3.
-- Run by: every worker's sweeper, in the transaction that holds the schedules' rows: a statement of its own, since only
-- one that began after the lock sees what the last one to fire them has started.
-- Locks: none. Expected index: workflows_scheduled. Zero rows: all have ended.
SELECT g.namespace, g.name, open.id
  FROM unnest($1::text[], $2::text[]) AS g(namespace, name)
 CROSS JOIN LATERAL (
       SELECT w.id FROM perdure.workflows w
        WHERE w.namespace = g.namespace AND w.schedule = g.name AND w.status < 50
        ORDER BY w.id LIMIT $3::integer) open
