-- Undoing steps: which step has which other one to undo it, and how far a run is with that.

-- Written before the step begins. What was promised is done only where the step has succeeded.
CREATE TABLE perdure.undos (
    workflow_id text COLLATE "C" NOT NULL,
    step_index  integer NOT NULL,
    name        text COLLATE "C" NOT NULL,
    input       text NOT NULL,
    PRIMARY KEY (workflow_id, step_index)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.undos.name IS 'registered name of the step that undoes this one';
COMMENT ON COLUMN perdure.undos.input IS 'its arguments by position; the first place is that of the result';

-- Null and without a check, so that no row is rewritten or read.
ALTER TABLE perdure.workflows
    ADD COLUMN undo smallint,
    ADD COLUMN undo_at integer;

COMMENT ON COLUMN perdure.workflows.undo IS 'null: no step can be undone; 0: some can; 1: a cancel wants it; 2: they are, as the run has failed; 3: they are, as it is cancelled';
COMMENT ON COLUMN perdure.workflows.undo_at IS 'index of the step that says what is undone, from 2 on';

-- Runs whose steps are undone for a cancel which their children have not got yet.
CREATE INDEX workflows_undo_cascade ON perdure.workflows (id) WHERE cascades AND undo = 3;

-- Not validated: what is there had fewer to choose from.
ALTER TABLE perdure.workflows
    DROP CONSTRAINT workflows_cancel_mode_check,
    ADD CONSTRAINT workflows_cancel_mode_check CHECK (cancel_mode IN ('Graceful', 'Immediate', 'Compensate')) NOT VALID;
