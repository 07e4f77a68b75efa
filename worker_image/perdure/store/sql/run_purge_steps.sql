-- Purpose: remove steps of ended runs that are marked for removal, a bounded number at a time.
-- Run by: the operator's clean-up and the worker's retention, until it removes none. Nobody writes steps of an ended run.
-- Locks: the step rows. Expected index: workflows_gone, workflow_steps_pkey. Zero rows: no steps are left.
DELETE FROM perdure.workflow_steps s
 USING (SELECT t.workflow_id, t.step_index
          FROM (SELECT w.id FROM perdure.workflows w
                 WHERE w.deleted AND w.status >= 50
                   AND NOT EXISTS (SELECT FROM perdure.workflows c WHERE c.parent_id = w.id AND c.status < 50)
                 ORDER BY w.id LIMIT $1::integer) gone
         CROSS JOIN LATERAL
               (SELECT i.workflow_id, i.step_index FROM perdure.workflow_steps i
                 WHERE i.workflow_id = gone.id ORDER BY i.step_index LIMIT $2::integer) t
         LIMIT $2::integer) old
 WHERE s.workflow_id = old.workflow_id AND s.step_index = old.step_index
