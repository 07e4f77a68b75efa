-- Purpose: after an answer was lost and the resent statement found the run not owned: did my first copy end it?
-- Run by: the worker's journal, before it says that ownership was lost.
-- Locks: none. Expected index: workflows_pkey. Zero rows: no, somebody else moved the run on.
SELECT w.status FROM perdure.workflows w WHERE w.id = $1::text AND w.ended_fence = $2::bigint AND w.ended_by = $3::text
