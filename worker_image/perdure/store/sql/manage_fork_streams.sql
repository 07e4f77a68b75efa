-- Purpose: what the run $1 wrote to its streams before the index $3 becomes the fork's, $2: values keep their order, and
-- a stream is closed that was closed before. Run by: fork, after manage_fork and under the same lock.
-- Locks: none. Expected index: stream_values_pkey, streams_pkey. One row.
WITH stream AS MATERIALIZED (
    SELECT v.key, count(*) AS length
      FROM perdure.stream_values v
     WHERE v.workflow_id = $1::text AND v.step_index < $3::integer
     GROUP BY v.key
), copied AS (
    INSERT INTO perdure.stream_values (workflow_id, key, "offset", value, step_index, written_at)
    SELECT $2::text, v.key, row_number() OVER (PARTITION BY v.key ORDER BY v."offset") - 1, v.value, v.step_index,
           v.written_at
      FROM perdure.stream_values v
     WHERE v.workflow_id = $1::text AND v.step_index < $3::integer
), made AS (
    INSERT INTO perdure.streams (workflow_id, key, length, closed_by)
    SELECT $2::text, s.key, coalesce(stream.length, 0), CASE WHEN s.closed_by < $3::integer THEN s.closed_by END
      FROM perdure.streams s
      LEFT JOIN stream ON stream.key = s.key
     WHERE s.workflow_id = $1::text AND (stream.key IS NOT NULL OR s.closed_by < $3::integer)
    RETURNING key
)
SELECT count(*) AS streams FROM made
