-- Purpose: the queues of a namespace that have limits, in the order of their names; with $2 the one of that name.
-- Run by: programs. Locks: none. Expected index: queues_pkey. Zero rows: there are none.
SELECT q.* FROM perdure.queues q
 WHERE q.namespace = $1::text AND q.name = coalesce($2::text, q.name)
 ORDER BY q.name
