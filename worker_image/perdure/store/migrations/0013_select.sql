-- A branch of a select that another branch has won: 45. No outcome, and never done again.
-- The rows that are there keep the rule; they are not read again.
ALTER TABLE perdure.workflow_steps
    DROP CONSTRAINT workflow_steps_status_check,
    ADD CONSTRAINT workflow_steps_status_check CHECK (status IN (10, 15, 20, 30, 40, 45)) NOT VALID;

-- What perdure.uuid4 and perdure.random go by, so that a fork replays what it has copied.
ALTER TABLE perdure.workflows ADD COLUMN seed text COLLATE "C";

COMMENT ON COLUMN perdure.workflows.seed IS 'of a fork: the id of the first run of its line; null: its own';
