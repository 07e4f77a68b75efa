-- Purpose: remove the schedules of an owner that its set has no more. Runs that they have started go on.
-- Run by: clients, in the transaction that applies the set.
-- Locks: the removed rows. Expected index: schedules_pkey. Zero rows: there are none.
DELETE FROM perdure.schedules s
 WHERE s.namespace = $1::text AND s.owner = $2::text AND s.owner <> '' AND s.name <> ALL($3::text[])
RETURNING s.name
