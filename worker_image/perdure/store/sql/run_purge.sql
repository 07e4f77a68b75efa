-- Purpose: remove ended runs whose resource is gone and whose steps are removed, with their payloads.
-- Run by: the operator's clean-up, after run_purge_steps.
-- Locks: the runs' rows, those of others skipped. Expected index: workflows_gone, the primary keys of the others.
-- Zero rows: nothing to remove, or steps are left.
WITH gone AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w
     WHERE w.deleted AND w.status >= 50
       AND NOT EXISTS (SELECT FROM perdure.workflow_steps s WHERE s.workflow_id = w.id)
     ORDER BY w.id LIMIT $1::integer
       FOR UPDATE SKIP LOCKED
), payload AS (
    DELETE FROM perdure.workflow_payloads p USING gone WHERE p.workflow_id = gone.id
)
DELETE FROM perdure.workflows w USING gone WHERE w.id = gone.id RETURNING w.id
