-- Purpose: set attributes of a run ($2, a JSON object) and remove others ($3); all else stays.
-- Run by: set_attributes, under the lock of manage_lock. Locks: held since then. Expected index: workflows_pkey.
UPDATE perdure.workflows w
   SET attributes = nullif((coalesce(w.attributes, '{}'::jsonb) || $2::text::jsonb) - $3::text[], '{}'::jsonb)
 WHERE w.id = $1::text
RETURNING octet_length(w.attributes::text) AS bytes
