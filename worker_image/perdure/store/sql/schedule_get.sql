-- Purpose: how one schedule stands.
-- Run by: clients. Locks: none. Expected index: schedules_pkey. Zero rows: there is none of that name.
SELECT s.name, s.workflow, s.cron, s.time_zone, s.overlap, s.catch_up,
       extract(epoch FROM s.catch_up_window)::float8 AS catch_up_window, extract(epoch FROM s.jitter)::float8 AS jitter,
       s.pool, s.queue, s.priority, s.owner, s.paused, s.last_tick, s.decided, s.queued_tick, s.skipped, s.missed,
       s.problem, s.created_at, clock_timestamp() AS now
  FROM perdure.schedules s
 WHERE s.namespace = $1::text AND s.name = $2::text
