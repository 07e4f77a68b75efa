-- Purpose: all who waited for streams have been woken since these had their lengths ($3) and were closed or not ($4);
-- after that. What was written since then stays untold.
-- Run by: whoever woke them. Locks: the streams, in the order of the lists, which are sorted. Expected index:
-- streams_pkey. Zero rows: told before, or written since.
WITH stream AS MATERIALIZED (
    SELECT s.workflow_id, s.key
      FROM unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[]) AS r(run_id, key, length, closed)
     CROSS JOIN LATERAL (
           SELECT i.workflow_id, i.key FROM perdure.streams i
            WHERE i.workflow_id = r.run_id AND i.key = r.key AND i.length = r.length
              AND (i.closed_by IS NOT NULL) = r.closed AND i.untold_since IS NOT NULL
            LIMIT 1
              FOR NO KEY UPDATE) s
)
UPDATE perdure.streams s SET untold_since = NULL
  FROM stream
 WHERE s.workflow_id = stream.workflow_id AND s.key = stream.key
RETURNING s.key
