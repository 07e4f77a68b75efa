-- Purpose: schedules that are to be looked at: their next tick has come, or the runs have ended for which a tick waits.
-- Run by: every worker's sweeper, outside of a transaction to see whether there are any, inside of one to fire them.
-- Locks: the schedules' rows, those of others skipped: whoever else would fire them does so already.
-- Expected index: schedules_due, schedules_queued, workflows_scheduled, schedules_pkey. Zero rows: nothing is due.
WITH due AS MATERIALIZED (
    (SELECT s.namespace, s.name FROM perdure.schedules s
      WHERE NOT s.paused AND s.next_at <= now()
      ORDER BY s.next_at LIMIT $1::integer)
    UNION
    (SELECT s.namespace, s.name FROM perdure.schedules s
      WHERE NOT s.paused AND s.queued_tick IS NOT NULL AND s.problem IS NULL
        AND NOT EXISTS (SELECT FROM perdure.workflows w
                         WHERE w.namespace = s.namespace AND w.schedule = s.name AND w.status < 50)
      LIMIT $1::integer)
)
SELECT s.namespace, s.name, s.cron, s.time_zone, s.overlap, s.catch_up,
       extract(epoch FROM s.catch_up_window)::float8 AS catch_up_window, extract(epoch FROM s.jitter)::float8 AS jitter,
       s.decided, s.queued_tick, clock_timestamp() AS now
  FROM due JOIN perdure.schedules s ON s.namespace = due.namespace AND s.name = due.name
 WHERE NOT s.paused AND (s.next_at <= now() OR s.queued_tick IS NOT NULL)
 ORDER BY s.namespace, s.name
   FOR NO KEY UPDATE OF s SKIP LOCKED
