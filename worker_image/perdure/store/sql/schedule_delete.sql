-- Purpose: remove one schedule. Runs that it has started go on.
-- Run by: clients. Locks: its row. Expected index: schedules_pkey. Zero rows: there is none of that name.
DELETE FROM perdure.schedules s WHERE s.namespace = $1::text AND s.name = $2::text RETURNING s.name
