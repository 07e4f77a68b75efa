-- Purpose: which run holds a deduplication id in a queue, that of the asking run unless another is named.
-- Run by: the worker's journal, for the start of a child that was not made although its id is free.
-- Locks: none. Expected index: workflows_pkey, workflows_deduplication. Zero rows: it has ended since.
SELECT w.id, w.namespace, w.workflow
  FROM perdure.workflows p
  JOIN perdure.workflows w ON w.namespace = p.namespace AND w.queue = coalesce($2::text, p.queue)
                          AND w.deduplication_id = $3::text AND w.status < 50
 WHERE p.id = $1::text
