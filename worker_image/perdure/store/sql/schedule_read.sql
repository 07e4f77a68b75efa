-- Purpose: how schedules stand: a page of those of a namespace behind the name $2, in order.
-- Run by: clients. Locks: none. Expected index: schedules_pkey. Zero rows: there are none, or none behind that name.
SELECT s.name, s.workflow, s.cron, s.time_zone, s.overlap, s.catch_up,
       extract(epoch FROM s.catch_up_window)::float8 AS catch_up_window, extract(epoch FROM s.jitter)::float8 AS jitter,
       s.pool, s.queue, s.priority, s.owner, s.paused, s.last_tick, s.decided, s.queued_tick, s.skipped, s.missed,
       s.problem, s.created_at, clock_timestamp() AS now
  FROM perdure.schedules s
 WHERE s.namespace = $1::text AND s.name > $2::text
 ORDER BY s.name LIMIT $3::integer
