-- Purpose: take the limits off a queue. Its runs stay, and workers take them as their slots allow.
-- Run by: programs ($3 empty), and whoever reads them from a resource ($3 its mark).
-- Locks: the queue's row, which claims of the queue hold while they take runs. Expected index: queues_pkey.
-- Zero rows: the queue has no row, or is managed by another; nothing was written.
DELETE FROM perdure.queues q
 WHERE q.namespace = $1::text AND q.name = $2::text AND q.managed_by = $3::text
RETURNING q.name
