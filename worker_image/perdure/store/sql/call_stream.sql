-- Purpose: the value of a stream at an offset, how stream and run stand, and the asking run's count of wakes, in one
-- snapshot. Run by: the worker, for perdure.read_stream. Locks: none. Expected index: the primary keys.
-- Zero rows: the asking run does not exist. `status` null: the run of the stream does not exist. `length` null: nothing
-- was written to it.
SELECT v.value, r.status, s.length, s.closed_by IS NOT NULL AS closed, w.wake_seq
  FROM perdure.workflows w
  LEFT JOIN perdure.workflows r ON r.id = $2::text
  LEFT JOIN perdure.streams s ON s.workflow_id = $2::text AND s.key = $3::text
  LEFT JOIN perdure.stream_values v ON v.workflow_id = $2::text AND v.key = $3::text AND v."offset" = $4::bigint
 WHERE w.id = $1::text
