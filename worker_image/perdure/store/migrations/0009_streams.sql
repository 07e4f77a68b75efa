-- Streams of runs: values in their order under a key, which anybody reads from any offset on.

CREATE TABLE perdure.streams (
    workflow_id  text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    length       bigint NOT NULL,
    closed_by    integer,
    untold_since timestamptz,
    PRIMARY KEY (workflow_id, key)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.streams.length IS 'offset of the next value';
COMMENT ON COLUMN perdure.streams.closed_by IS 'index of the step that closed it; null: it is open';
COMMENT ON COLUMN perdure.streams.untold_since IS 'when something was written of which nobody who waits for it was told; null: all were';

-- Written to, and its writer died over telling of it.
CREATE INDEX streams_untold ON perdure.streams (untold_since) WHERE untold_since IS NOT NULL;

CREATE TABLE perdure.stream_values (
    workflow_id text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    "offset"    bigint NOT NULL,
    value       text NOT NULL,
    step_index  integer NOT NULL,
    written_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (workflow_id, key, "offset")
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.stream_values.step_index IS 'the step that wrote it, or inside of which it was written';

-- Which runs wait for which stream of which run. A row is written before the stream is looked at once more.
CREATE TABLE perdure.stream_waits (
    run_id      text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    step_index  integer NOT NULL,
    "offset"    bigint NOT NULL,
    PRIMARY KEY (run_id, key, workflow_id, step_index) INCLUDE ("offset")
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.stream_waits.run_id IS 'the run whose stream it is; workflow_id is the one that waits';

CREATE INDEX stream_waits_of ON perdure.stream_waits (workflow_id);
