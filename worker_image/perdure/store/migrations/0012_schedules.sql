-- Schedules, which workers fire, and debounced starts. The column rewrites nothing, and its index holds no row that is
-- there.

CREATE TABLE perdure.schedules (
    namespace        text COLLATE "C" NOT NULL,
    name             text COLLATE "C" NOT NULL,
    owner            text COLLATE "C" NOT NULL DEFAULT '',
    cron             text NOT NULL,
    time_zone        text NOT NULL,
    overlap          text NOT NULL CHECK (overlap IN ('allow', 'skip', 'cancel-previous', 'queue-one')),
    catch_up         text NOT NULL CHECK (catch_up IN ('none', 'latest', 'all')),
    catch_up_window  interval NOT NULL,
    jitter           interval NOT NULL,
    workflow         text NOT NULL,
    requires         text NOT NULL,
    input            text NOT NULL,
    pool             text COLLATE "C" NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    priority         integer NOT NULL,
    timeout          interval,
    partition_key    text COLLATE "C" NOT NULL,
    attributes       jsonb,
    max_run_attempts integer,
    paused           boolean NOT NULL DEFAULT false,
    decided          timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_tick        timestamptz,
    next_at          timestamptz DEFAULT clock_timestamp(),
    queued_tick      timestamptz,
    last_tick        timestamptz,
    skipped          bigint NOT NULL DEFAULT 0,
    missed           bigint NOT NULL DEFAULT 0,
    problem          text,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.schedules.owner IS 'whose set it is one of, empty: nobody''s; only that owner changes it';
COMMENT ON COLUMN perdure.schedules.decided IS 'every tick up to here is settled: started, skipped or missed';
COMMENT ON COLUMN perdure.schedules.next_at IS 'when a worker looks at it again; null: it ticks no more';
COMMENT ON COLUMN perdure.schedules.queued_tick IS 'waits for the end of the runs that are there';
COMMENT ON COLUMN perdure.schedules.problem IS 'why no worker could tell the next tick, null when all is well';

-- What is due, and what may have become free to start.
CREATE INDEX schedules_due ON perdure.schedules (next_at) WHERE NOT paused;
CREATE INDEX schedules_queued ON perdure.schedules (namespace, name) WHERE NOT paused AND queued_tick IS NOT NULL;

ALTER TABLE perdure.workflows ADD COLUMN schedule text COLLATE "C";

COMMENT ON COLUMN perdure.workflows.schedule IS 'the schedule of the namespace that started it';

-- Runs of a schedule that have not ended.
CREATE INDEX workflows_scheduled ON perdure.workflows (namespace, schedule, id)
    WHERE schedule IS NOT NULL AND status < 50;

-- Which run a further start with the same key postpones.
CREATE TABLE perdure.debounces (
    namespace text COLLATE "C" NOT NULL,
    workflow  text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    calls     text[] NOT NULL DEFAULT '{}',
    due_at    timestamptz NOT NULL,
    PRIMARY KEY (namespace, workflow, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.debounces.calls IS 'the latest calls that came through: one that is sent again does nothing';
COMMENT ON COLUMN perdure.debounces.due_at IS 'when the run becomes claimable';

-- Removal of what is long over.
CREATE INDEX debounces_due ON perdure.debounces (due_at);
