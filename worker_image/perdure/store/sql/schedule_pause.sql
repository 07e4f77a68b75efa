-- Purpose: pause a schedule, or have it go on. A tick that waits for the end of a run is given up by a pause; ticks that
-- come during one start nothing, also afterwards. Done again it changes nothing.
-- Run by: clients. Locks: its row. Expected index: schedules_pkey. Zero rows: there is none of that name.
UPDATE perdure.schedules s
   SET paused = $3::boolean,
       skipped = s.skipped + (s.queued_tick IS NOT NULL AND $3::boolean)::integer,
       queued_tick = CASE WHEN NOT $3::boolean THEN s.queued_tick END,
       decided = CASE WHEN s.paused AND NOT $3::boolean THEN clock_timestamp() ELSE s.decided END,
       next_at = CASE WHEN s.paused AND NOT $3::boolean THEN clock_timestamp() ELSE s.next_at END
 WHERE s.namespace = $1::text AND s.name = $2::text
RETURNING s.name
