-- Purpose: the value of an event, and the asking run's count of wakes, in one snapshot.
-- Run by: the worker, for perdure.get_event. Locks: none. Expected index: the primary keys.
-- Zero rows: the asking run does not exist. `value` null: it is not set.
SELECT e.value, w.wake_seq
  FROM perdure.workflows w
  LEFT JOIN perdure.events e ON e.workflow_id = $2::text AND e.name = $3::text
 WHERE w.id = $1::text
