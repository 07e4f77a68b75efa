-- Purpose: all who waited for a stream have been woken since it had this length and was closed or not; after that. What
-- was written since then stays untold.
-- Run by: whoever woke them. Locks: the stream. Expected index: streams_pkey. Zero rows: told before, or written since.
UPDATE perdure.streams s SET untold_since = NULL
 WHERE s.workflow_id = $1::text AND s.key = $2::text AND s.length = $3::bigint
   AND (s.closed_by IS NOT NULL) = $4::boolean AND s.untold_since IS NOT NULL
RETURNING s.key
