-- Waits for the ends of runs that somebody else has started. A parent needs none: its children name it.

-- A row is written before the run is looked at for the last time, and goes when its waiter has been woken.
CREATE TABLE perdure.run_waits (
    run_id      text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    fence       bigint NOT NULL,
    seq         bigint NOT NULL,
    PRIMARY KEY (run_id, workflow_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.run_waits.run_id IS 'the run whose end is waited for; workflow_id is the one that waits';
COMMENT ON COLUMN perdure.run_waits.seq IS 'with fence: the call that wrote it last, so that one that was written anew is not forgotten with the old one';

CREATE INDEX run_waits_of ON perdure.run_waits (workflow_id, run_id);

-- Set by a run that waits, answered by the statement that ends the run. In no index and with a constant default, as
-- `awaited`.
ALTER TABLE perdure.workflows ADD COLUMN waited boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN perdure.workflows.waited IS 'a run that did not start it waits for the end: the worker that ends it wakes that one';
