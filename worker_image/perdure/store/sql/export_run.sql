-- Purpose: of one run what a replay of it needs beside its steps. Of a run that is about to be removed nothing.
-- Run by: clients. Locks: none. Expected index: the primary keys. Zero rows: no such run.
SELECT w.id, w.namespace, w.name, w.workflow, w.status, w.version, w.parent_id, w.rewinds, w.seed, w.serialization,
       coalesce(p.input, '') AS input, p.definition, p.output, p.error
  FROM perdure.workflows w LEFT JOIN perdure.workflow_payloads p ON p.workflow_id = w.id
 WHERE w.id = $1::text AND NOT w.deleted
