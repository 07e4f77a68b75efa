-- Purpose: what the schedules of these names start with, as it is stored.
-- Run by: clients that make a schedule whose input a serializer writes, which may write the same one otherwise each time.
-- Locks: none. Expected index: schedules_pkey. No row for a name that is free.
SELECT s.name, s.input FROM perdure.schedules s WHERE s.namespace = $1::text AND s.name = ANY($2::text[])
