-- Purpose: become or stay the one process that acts for a name, where no session can hold a lock (behind a pooler).
-- Run by: the operator, once a second while it does not lead, every two while it does; under its own token $2.
-- Locks: the name's row. Expected index: leaders_pkey. Zero rows: another one holds it, and its time is not over.
INSERT INTO perdure.leaders AS l (name, holder, held_until)
VALUES ($1::text, $2::text, clock_timestamp() + make_interval(secs => $3::float8))
ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, held_until = clock_timestamp() + make_interval(secs => $3::float8)
 WHERE l.holder = excluded.holder OR l.held_until < clock_timestamp()
RETURNING l.name
