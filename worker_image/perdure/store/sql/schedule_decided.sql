-- Purpose: write down what was decided of schedules that were due, and when they are to be looked at again: at $5, or
-- where there was a problem after $11 seconds.
-- Run by: every worker's sweeper, in the transaction that holds their rows.
-- Locks: the schedules' rows, held already. Expected index: schedules_pkey. A row for each schedule.
UPDATE perdure.schedules s
   SET decided = d.decided,
       next_tick = d.next_tick,
       next_at = CASE WHEN d.problem IS NULL THEN d.next_at
                      ELSE clock_timestamp() + make_interval(secs => $11::float8) END,
       queued_tick = d.queued_tick,
       last_tick = coalesce(d.last_tick, s.last_tick),
       skipped = s.skipped + d.skipped,
       missed = s.missed + d.missed,
       problem = d.problem
  FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[],
              $7::timestamptz[], $8::integer[], $9::integer[], $10::text[])
       AS d(namespace, name, decided, next_tick, next_at, queued_tick, last_tick, skipped, missed, problem)
 WHERE s.namespace = d.namespace AND s.name = d.name
RETURNING s.name
