-- What a start may say of its run beside the queue: what it is a duplicate of, attributes, no timeout, whether it may
-- find a run of its id. And why a run was cancelled, told by a column and not by the words of the reason.
-- The columns rewrite nothing, and the indexes hold no row that is there.

ALTER TABLE perdure.workflows
    ADD COLUMN deduplication_id text COLLATE "C" CHECK (length(deduplication_id) <= 255),
    ADD COLUMN attributes jsonb,
    ADD COLUMN start_token bigint,
    ADD COLUMN deadline_inherited boolean NOT NULL DEFAULT false,
    ADD COLUMN cancel_cause smallint CHECK (cancel_cause = 1);

COMMENT ON COLUMN perdure.workflows.deduplication_id IS 'no two runs of a queue that have not ended have the same';
COMMENT ON COLUMN perdure.workflows.attributes IS 'a JSON object of whoever started it, for lists';
COMMENT ON COLUMN perdure.workflows.start_token IS 'of the start that made it, or ran it again, when that asks whether the run was there: made again it knows its own';
COMMENT ON COLUMN perdure.workflows.deadline_inherited IS 'deadline_at is the parent''s: a deadline of the parent ends it, too';
COMMENT ON COLUMN perdure.workflows.cancel_cause IS 'why cancel_mode is set: null somebody asked, 1 a deadline has passed';

-- Held until the end: no statement that ends a run has to give it back.
CREATE UNIQUE INDEX workflows_deduplication ON perdure.workflows (namespace, queue, deduplication_id)
    WHERE deduplication_id IS NOT NULL AND status < 50;
-- Runs that have these attributes.
CREATE INDEX workflows_attributes ON perdure.workflows USING gin (attributes jsonb_path_ops) WHERE attributes IS NOT NULL;
