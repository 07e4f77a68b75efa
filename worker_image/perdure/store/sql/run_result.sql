-- Purpose: status and outcome of one run. Run by: clients, and after an upsert that met a twin.
-- Locks: none. Expected index: the primary keys. Zero rows: no such run.
SELECT w.status, w.generation, p.output, p.error
  FROM perdure.workflows w LEFT JOIN perdure.workflow_payloads p ON p.workflow_id = w.id
 WHERE w.id = $1::text
