-- Durable calls beside steps: sleeps, child runs, messages, events.

-- A call that waits is no step in progress: 15. The rows that are there keep the rule; they are not read again.
ALTER TABLE perdure.workflow_steps
    DROP CONSTRAINT workflow_steps_status_check,
    ADD CONSTRAINT workflow_steps_status_check CHECK (status IN (10, 15, 20, 30, 40)) NOT VALID;

ALTER TABLE perdure.workflows
    ADD COLUMN parent_id text COLLATE "C",
    ADD COLUMN parent_step integer,
    ADD COLUMN parent_told boolean NOT NULL DEFAULT false,
    ADD COLUMN cascades boolean NOT NULL DEFAULT false,
    ADD COLUMN call_fence bigint NOT NULL DEFAULT 0,
    ADD COLUMN call_seq bigint NOT NULL DEFAULT 0;

COMMENT ON COLUMN perdure.workflows.parent_id IS 'the run that started this one, at its step parent_step';
COMMENT ON COLUMN perdure.workflows.parent_told IS 'the parent was woken after this run had ended';
COMMENT ON COLUMN perdure.workflows.cascades IS 'has children that a cancel has not been passed on to';
COMMENT ON COLUMN perdure.workflows.call_seq IS 'with call_fence: its last call with an effect outside its steps, so that a late copy has none';

-- Wake: waiting and delayed rows whose time comes, pool by pool, so that none waits behind another's ten thousand.
DROP INDEX perdure.workflows_wake;
CREATE INDEX workflows_wake ON perdure.workflows (namespace, pool, wake_at)
    WHERE status IN (20, 40) AND wake_at IS NOT NULL AND NOT reopen;
-- Children of a run, for the cascade of its cancel and for removal with it.
CREATE INDEX workflows_children ON perdure.workflows (parent_id, id) WHERE parent_id IS NOT NULL;
-- Ended children whose parent may not have heard of it.
CREATE INDEX workflows_untold ON perdure.workflows (finished_at)
    WHERE parent_id IS NOT NULL AND NOT parent_told AND status >= 50;
-- Cancelled runs whose children have to follow.
CREATE INDEX workflows_cascade ON perdure.workflows (id) WHERE cascades AND cancel_mode IS NOT NULL;

-- Messages stay until their receiver is removed: the key keeps a late copy from being a second one.
CREATE TABLE perdure.messages (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workflow_id text COLLATE "C" NOT NULL,
    topic       text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    value       text NOT NULL,
    sent_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    announced   boolean NOT NULL DEFAULT false,
    consumed_by integer
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.messages.workflow_id IS 'the receiver';
COMMENT ON COLUMN perdure.messages.key IS 'a second message with the same key and receiver is none';
COMMENT ON COLUMN perdure.messages.announced IS 'the receiver was woken after this message was there';
COMMENT ON COLUMN perdure.messages.consumed_by IS 'index of the receiving step';

CREATE UNIQUE INDEX messages_key ON perdure.messages (workflow_id, key);
-- What a receiver takes, in order.
CREATE INDEX messages_inbox ON perdure.messages (workflow_id, topic, id) WHERE consumed_by IS NULL;
-- What its sender died over.
CREATE INDEX messages_unannounced ON perdure.messages (sent_at) WHERE NOT announced;

CREATE TABLE perdure.events (
    workflow_id text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    value       text NOT NULL,
    fence       bigint NOT NULL,
    seq         bigint NOT NULL,
    set_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    announced   boolean NOT NULL DEFAULT false,
    PRIMARY KEY (workflow_id, name)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.events.announced IS 'whoever waited for it was woken after it was set';

-- Set again after its waiters were woken, or its setter died over waking them.
CREATE INDEX events_unannounced ON perdure.events (set_at) WHERE NOT announced;

-- Every value that an event had, by the step that set it.
CREATE TABLE perdure.events_history (
    workflow_id text COLLATE "C" NOT NULL,
    step_index  integer NOT NULL,
    name        text COLLATE "C" NOT NULL,
    value       text NOT NULL,
    set_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (workflow_id, step_index)
);

-- Which runs wait for which event of which run. A row is written before the event is looked for once more.
CREATE TABLE perdure.event_waits (
    run_id      text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    step_index  integer NOT NULL,
    PRIMARY KEY (run_id, name, workflow_id, step_index)
);

COMMENT ON COLUMN perdure.event_waits.run_id IS 'the run whose event it is; workflow_id is the one that waits';

CREATE INDEX event_waits_of ON perdure.event_waits (workflow_id);
