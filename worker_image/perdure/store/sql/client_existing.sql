-- Purpose: what runs with these ids are, to tell the same start made again from an id that is in use.
-- Run by: clients and the journal, after a start that found ids taken: only a later statement sees the rows of a twin.
-- Locks: none. Expected index: the primary keys. Zero rows: removed since, or it was no id that was taken.
SELECT w.id, w.namespace, w.workflow, coalesce(p.input, '') AS input, w.status, w.start_token, w.parent_id, w.parent_step,
       w.deleted
  FROM perdure.workflows w LEFT JOIN perdure.workflow_payloads p ON p.workflow_id = w.id
 WHERE w.id = ANY($1::text[])
