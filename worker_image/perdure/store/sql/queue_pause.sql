-- Purpose: pause ($3) or resume a queue. Once this is committed no claim takes runs of a paused one; those that run go on.
-- Run by: programs ($4 empty), and whoever reads it from a resource ($4 its mark).
-- Locks: the queue's row, which claims of the queue hold while they take runs. Expected index: queues_pkey.
-- Zero rows: the queue has no row, or is managed by another; nothing was written.
UPDATE perdure.queues q
   SET paused = $3::boolean,
       generation = q.generation + (q.paused <> $3::boolean)::integer,
       changed_at = CASE WHEN q.paused <> $3::boolean THEN clock_timestamp() ELSE q.changed_at END
 WHERE q.namespace = $1::text AND q.name = $2::text AND q.managed_by = $4::text
RETURNING q.*
