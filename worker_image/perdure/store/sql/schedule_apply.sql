-- Purpose: make schedules what they are said to be. What is there is changed if it has the same owner and either $3 says
-- so or nothing differs; a changed rule ticks from now on, an unchanged one loses no tick that is still to be started.
-- Whether it is paused stays. A worker plans its next tick anew, at once.
-- Run by: clients, in a transaction that is given up when a name is missing in the answer.
-- Locks: the schedules' rows, sorted by name. Expected index: schedules_pkey.
-- A row for each schedule that is now as it was said; one that is missing belongs to somebody else, or differs.
WITH wanted AS MATERIALIZED (
    SELECT r.name, r.cron, r.time_zone, r.overlap, r.catch_up, make_interval(secs => r.catch_up_window) AS catch_up_window,
           make_interval(secs => r.jitter) AS jitter, r.workflow, r.requires, r.input, r.pool, r.queue, r.priority,
           make_interval(secs => r.timeout) AS timeout, r.partition_key, r.attributes::jsonb AS attributes,
           r.max_run_attempts
      FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::float8[], $10::float8[], $11::text[],
                  $12::text[], $13::text[], $14::text[], $15::text[], $16::integer[], $17::float8[], $18::text[],
                  $19::text[], $20::integer[])
           AS r(name, cron, time_zone, overlap, catch_up, catch_up_window, jitter, workflow, requires, input, pool, queue,
                priority, timeout, partition_key, attributes, max_run_attempts)
     ORDER BY r.name
)
INSERT INTO perdure.schedules AS s (
    namespace, name, owner, cron, time_zone, overlap, catch_up, catch_up_window, jitter, workflow, requires, input, pool,
    queue, priority, timeout, partition_key, attributes, max_run_attempts)
SELECT $1::text, w.name, $2::text, w.cron, w.time_zone, w.overlap, w.catch_up, w.catch_up_window, w.jitter, w.workflow,
       w.requires, w.input, w.pool, w.queue, w.priority, w.timeout, w.partition_key, w.attributes, w.max_run_attempts
  FROM wanted w
ON CONFLICT (namespace, name) DO UPDATE SET
    cron = excluded.cron,
    time_zone = excluded.time_zone,
    overlap = excluded.overlap,
    catch_up = excluded.catch_up,
    catch_up_window = excluded.catch_up_window,
    jitter = excluded.jitter,
    workflow = excluded.workflow,
    requires = excluded.requires,
    input = excluded.input,
    pool = excluded.pool,
    queue = excluded.queue,
    priority = excluded.priority,
    timeout = excluded.timeout,
    partition_key = excluded.partition_key,
    attributes = excluded.attributes,
    max_run_attempts = excluded.max_run_attempts,
    decided = CASE WHEN (s.cron, s.time_zone) = (excluded.cron, excluded.time_zone) THEN s.decided
                   ELSE clock_timestamp() END,
    queued_tick = CASE WHEN (s.cron, s.time_zone) = (excluded.cron, excluded.time_zone) THEN s.queued_tick END,
    next_at = clock_timestamp()
 WHERE s.owner = excluded.owner
   AND ($3::boolean
        OR (s.cron, s.time_zone, s.overlap, s.catch_up, s.catch_up_window, s.jitter, s.workflow, s.input, s.pool, s.queue,
            s.priority, s.timeout, s.partition_key, s.attributes, s.max_run_attempts)
           IS NOT DISTINCT FROM
           (excluded.cron, excluded.time_zone, excluded.overlap, excluded.catch_up, excluded.catch_up_window,
            excluded.jitter, excluded.workflow, excluded.input, excluded.pool, excluded.queue, excluded.priority,
            excluded.timeout, excluded.partition_key, excluded.attributes, excluded.max_run_attempts))
RETURNING s.name
