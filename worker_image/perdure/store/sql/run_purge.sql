-- Purpose: remove ended runs that are marked, because their resource is gone or they are old, with their payloads,
-- once nothing else of them is left. A run with children that have not ended stays: they find it by its id. So does one
-- whose parent may not have heard of its end.
-- Run by: the operator's clean-up and the worker's retention, after run_purge_steps and run_purge_calls.
-- Locks: the runs' rows, those of others skipped. Expected index: workflows_gone, the primary keys of the others.
-- Zero rows: nothing to remove, or something of them is left.
WITH gone AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w
     WHERE w.deleted AND w.status >= 50 AND (w.parent_id IS NULL OR w.parent_told)
       AND NOT EXISTS (SELECT FROM perdure.workflow_steps s WHERE s.workflow_id = w.id)
       AND NOT EXISTS (SELECT FROM perdure.messages m WHERE m.workflow_id = w.id)
       AND NOT EXISTS (SELECT FROM perdure.events e WHERE e.workflow_id = w.id)
       AND NOT EXISTS (SELECT FROM perdure.events_history h WHERE h.workflow_id = w.id)
       AND NOT EXISTS (SELECT FROM perdure.event_waits v WHERE v.workflow_id = w.id)
       AND NOT EXISTS (SELECT FROM perdure.run_waits v WHERE v.workflow_id = w.id)
       AND NOT EXISTS (SELECT FROM perdure.workflows c WHERE c.parent_id = w.id AND c.status < 50)
     ORDER BY w.id LIMIT $1::integer
       FOR UPDATE SKIP LOCKED
), payload AS (
    DELETE FROM perdure.workflow_payloads p USING gone WHERE p.workflow_id = gone.id
)
DELETE FROM perdure.workflows w USING gone WHERE w.id = gone.id RETURNING w.id
