-- Purpose: take back what the run $1 wrote to its streams from the index $2 on: values that stay and were written later
-- close up, so that offsets have no gap; a stream that was closed there is open.
-- Run by: rewind, before manage_rewind and under the same lock. Locks: the rows of its streams.
-- Expected index: stream_values_pkey, streams_pkey. One row.
WITH undone AS MATERIALIZED (
    SELECT v.key, min(v."offset") AS first
      FROM perdure.stream_values v
     WHERE v.workflow_id = $1::text AND v.step_index >= $2::integer
     GROUP BY v.key
), gone AS (
    DELETE FROM perdure.stream_values v
     USING undone
     WHERE v.workflow_id = $1::text AND v.key = undone.key AND v."offset" >= undone.first
    RETURNING v.key, undone.first, v."offset", v.value, v.step_index, v.written_at
), stays AS MATERIALIZED (
    SELECT g.key, g.first + row_number() OVER (PARTITION BY g.key ORDER BY g."offset") - 1 AS "offset", g.value,
           g.step_index, g.written_at
      FROM gone g
     WHERE g.step_index < $2::integer
), closed_up AS (
    INSERT INTO perdure.stream_values (workflow_id, key, "offset", value, step_index, written_at)
    SELECT $1::text, s.key, s."offset", s.value, s.step_index, s.written_at FROM stays s
), opened AS (
    UPDATE perdure.streams t
       SET length = coalesce((SELECT undone.first + (SELECT count(*) FROM stays s WHERE s.key = undone.key)
                                FROM undone WHERE undone.key = t.key), t.length),
           closed_by = CASE WHEN t.closed_by < $2::integer THEN t.closed_by END
     WHERE t.workflow_id = $1::text
       AND (t.closed_by >= $2::integer OR t.key IN (SELECT undone.key FROM undone))
    RETURNING t.key
)
SELECT count(*) AS streams FROM opened
