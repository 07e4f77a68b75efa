-- Purpose: let a run begin $2 seconds from now and not before; one that is delayed already waits for the new time
-- instead, whatever it waits for.
-- Run by: set_delay, under the lock of manage_lock. Locks: held since then. Expected index: workflows_pkey.
UPDATE perdure.workflows w
   SET status = 20,
       fence = w.fence + (w.status <> 20)::integer,
       edits = w.edits + 1,
       wake_at = begins.at,
       waiting_for = CASE WHEN w.status = 20 AND w.waiting_for IS NOT NULL THEN w.waiting_for
                          ELSE '{"kind": "StartDelayed", "message": "its start was put off"}'::jsonb END
                     || jsonb_build_object('until', begins.at),
       status_due_at = clock_timestamp()
  FROM (SELECT clock_timestamp() + make_interval(secs => $2::float8) AS at) begins
 WHERE w.id = $1::text
RETURNING w.id
