-- Purpose: let another process act for a name at once, instead of when the time is over.
-- Run by: the operator that leads, at its end. Locks: the name's row. Expected index: leaders_pkey.
-- Zero rows: it was another's by then.
DELETE FROM perdure.leaders l WHERE l.name = $1::text AND l.holder = $2::text RETURNING l.name
