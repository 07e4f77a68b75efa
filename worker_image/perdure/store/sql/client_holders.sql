-- Purpose: which runs hold these deduplication ids, each of a queue of one namespace.
-- Run by: clients, after a start that was not made although its id is free: only a later statement sees a twin's rows.
-- Locks: none. Expected index: workflows_deduplication. Zero rows: they have ended since.
SELECT r.n::integer AS n, w.id, w.workflow
  FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS r(queue, deduplication_id, n)
  JOIN perdure.workflows w ON w.namespace = $1::text AND w.queue = r.queue
                          AND w.deduplication_id = r.deduplication_id AND w.status < 50
