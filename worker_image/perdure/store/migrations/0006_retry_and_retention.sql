-- How often a run is tried when nothing is said is the worker's setting; ended runs without a resource are removed
-- after a time. Rows that are there keep the number of attempts with which they were made.

ALTER TABLE perdure.workflows ALTER COLUMN max_run_attempts DROP NOT NULL;
ALTER TABLE perdure.workflows ALTER COLUMN max_run_attempts DROP DEFAULT;

COMMENT ON COLUMN perdure.workflows.max_run_attempts IS 'how often the body runs in all when it fails; null: as the worker''s PERDURE_RUN_ATTEMPTS says';

-- Ended rows without a resource, pool by pool and oldest first, to be marked for removal. Those with a resource are
-- marked when that goes.
CREATE INDEX workflows_ended ON perdure.workflows (namespace, pool, finished_at, id)
    WHERE name IS NULL AND status >= 50 AND NOT deleted;

-- Written for each run, or each event, and removed in batches: vacuumed early, and without pauses.
ALTER TABLE perdure.workflow_payloads SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE perdure.events_history SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE perdure.event_waits SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
