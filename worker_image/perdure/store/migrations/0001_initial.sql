-- The first schema: runs, their payloads and steps, workers.
-- Rows of `workflows` stay small (payloads live apart) because they are updated at every change of owner;
-- the free space of their pages keeps updates that touch no index in place.
-- Keys compare byte by byte (COLLATE "C"): faster, the same order in every database, and no index breaks when
-- an operating system changes its sorting rules.

CREATE TABLE perdure.workflows (
    id                text COLLATE "C" PRIMARY KEY,
    namespace         text COLLATE "C" NOT NULL,
    name              text,
    workflow          text NOT NULL,
    requires          text[] NOT NULL,
    route             bigint NOT NULL GENERATED ALWAYS AS (hash_array_extended(requires, 0)) STORED,
    pool              text COLLATE "C" NOT NULL,
    queue             text COLLATE "C" NOT NULL,
    priority          integer NOT NULL,
    version           text COLLATE "C",
    run_at            timestamptz NOT NULL DEFAULT now(),
    status            smallint NOT NULL CHECK (status IN (10, 20, 30, 40, 50, 60, 70, 80)),
    worker_id         text COLLATE "C",
    fence             bigint NOT NULL DEFAULT 0,
    edits             integer NOT NULL DEFAULT 0,
    wake_seq          bigint NOT NULL DEFAULT 0,
    wake_at           timestamptz,
    reopen            boolean NOT NULL DEFAULT false,
    run_attempts      integer NOT NULL DEFAULT 0,
    max_run_attempts  integer NOT NULL DEFAULT 1,
    recoveries        integer NOT NULL DEFAULT 0,
    max_recoveries    integer NOT NULL DEFAULT 10,
    recovered_at_step integer NOT NULL DEFAULT -1,
    ended_fence       bigint,
    ended_by          text COLLATE "C",
    timeout           interval,
    deadline_at       timestamptz,
    suspended         boolean NOT NULL DEFAULT false,
    cancel_mode       text CHECK (cancel_mode IN ('Graceful', 'Immediate')),
    cancel_reason     text,
    deleted           boolean NOT NULL DEFAULT false,
    waiting_for       jsonb,
    waiting_since     timestamptz,
    generation        bigint NOT NULL DEFAULT 0,
    reported_revision bigint NOT NULL DEFAULT -1,
    status_due_at     timestamptz,
    created_at        timestamptz NOT NULL DEFAULT now(),
    started_at        timestamptz,
    finished_at       timestamptz,
    CHECK ((status = 30) = (worker_id IS NOT NULL)),
    CHECK ((status >= 50) = (finished_at IS NOT NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.workflows.requires IS 'names (workflow:x, step:y) that a worker must have to run it';
COMMENT ON COLUMN perdure.workflows.route IS 'stands for requires in the index of ready rows, where it may be too large';
COMMENT ON COLUMN perdure.workflows.version IS 'pinned at the first claim, null before it';
COMMENT ON COLUMN perdure.workflows.run_at IS 'place in the queue; kept when the run is given back';
COMMENT ON COLUMN perdure.workflows.fence IS 'rises at every change of owner, to none as well';
COMMENT ON COLUMN perdure.workflows.edits IS 'counts visible changes from outside since the last claim';
COMMENT ON COLUMN perdure.workflows.wake_seq IS 'rises at every wake, so that a park cannot miss one';
COMMENT ON COLUMN perdure.workflows.reopen IS 'the next attempt re-opens the failed steps that no other step followed';
COMMENT ON COLUMN perdure.workflows.recovered_at_step IS 'highest final step at the last recovery: progress since?';
COMMENT ON COLUMN perdure.workflows.ended_fence IS 'fence of the last ended ownership, with ended_by: answers "was it my own commit?"';
COMMENT ON COLUMN perdure.workflows.waiting_since IS 'since when no worker has it; null while one has';
COMMENT ON COLUMN perdure.workflows.status_due_at IS 'set when .status must be written; null once it was';

-- Claim and backlog: ready rows of one namespace, pool, queue, version and route in claim order. Version and route
-- stand before the order so that rows which a worker cannot run cost its claims one look-up, however many there are.
-- No other index may fit a claim: where statistics are old, the planner would take it and sort.
CREATE INDEX workflows_ready ON perdure.workflows
    (namespace, pool, queue, (coalesce(version, '')), route, priority, run_at, id)
    WHERE status = 10 AND (NOT suspended OR cancel_mode IS NOT NULL);
-- Beat and move: what a worker owns.
CREATE INDEX workflows_owned ON perdure.workflows (worker_id, id) WHERE status = 30;
-- Wake: waiting and delayed rows whose time comes; apart from them those whose failed steps are re-opened then.
CREATE INDEX workflows_wake ON perdure.workflows (wake_at)
    WHERE status IN (20, 40) AND wake_at IS NOT NULL AND NOT reopen;
CREATE INDEX workflows_retry ON perdure.workflows (wake_at) WHERE status = 20 AND reopen;
-- Deadlines of everything that has not ended.
CREATE INDEX workflows_deadline ON perdure.workflows (deadline_at) WHERE deadline_at IS NOT NULL AND status < 50;
-- Status fallback: what nobody who holds the run will report.
CREATE INDEX workflows_status_due ON perdure.workflows (status_due_at)
    WHERE status_due_at IS NOT NULL AND status <> 30 AND name IS NOT NULL AND NOT deleted;
-- What else has not ended, for counts and for versions that still have runs.
CREATE INDEX workflows_suspended ON perdure.workflows (namespace, pool, (coalesce(version, '')))
    WHERE status = 10 AND suspended AND cancel_mode IS NULL;
CREATE INDEX workflows_open ON perdure.workflows (namespace, status, pool, (coalesce(version, '')))
    WHERE status IN (20, 30, 40);
-- Ready or suspended runs that nobody has taken: those without a reason for it, and those whose reason may change.
CREATE INDEX workflows_unexplained ON perdure.workflows (namespace, waiting_since)
    WHERE status = 10 AND waiting_for IS NULL;
CREATE INDEX workflows_explained ON perdure.workflows (namespace, id) WHERE status = 10 AND waiting_for IS NOT NULL;
-- Rows behind resources, for the search of ghosts.
CREATE INDEX workflows_resource ON perdure.workflows (namespace, id) WHERE name IS NOT NULL AND NOT deleted;
-- Ended rows whose resource is gone, for removal.
CREATE INDEX workflows_gone ON perdure.workflows (id) WHERE deleted AND status >= 50;

-- No foreign keys to `workflows`: every write here hangs on a lock of that row anyway, and the check would cost
-- a look-up for each step. Rows are removed steps first, then payloads with the run.
CREATE TABLE perdure.workflow_payloads (
    workflow_id text COLLATE "C" PRIMARY KEY,
    input       text NOT NULL,
    definition  text,
    output      text,
    error       text
) WITH (fillfactor = 80);

CREATE TABLE perdure.workflow_steps (
    workflow_id    text COLLATE "C" NOT NULL,
    step_index     integer NOT NULL CHECK (step_index >= 0),
    name           text NOT NULL,
    status         smallint NOT NULL CHECK (status IN (10, 20, 30, 40)),
    fence          bigint NOT NULL,
    seq            bigint NOT NULL,
    started_fence  bigint NOT NULL,
    started_seq    bigint NOT NULL,
    attempts       integer NOT NULL DEFAULT 0,
    input          text NOT NULL,
    output         text,
    error          text,
    attempt_errors text,
    started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at    timestamptz,
    wake_at        timestamptz,
    PRIMARY KEY (workflow_id, step_index)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.workflow_steps.seq IS 'number of the write within the claim: writes are monotone in (fence, seq)';
COMMENT ON COLUMN perdure.workflow_steps.started_seq IS 'with started_fence: the last start, to tell whether a step followed another''s failure';

CREATE TABLE perdure.workers (
    id          text COLLATE "C" PRIMARY KEY,
    namespace   text COLLATE "C" NOT NULL,
    pool        text COLLATE "C" NOT NULL,
    pod         text NOT NULL,
    pod_uid     text COLLATE "C" NOT NULL,
    version     text COLLATE "C" NOT NULL,
    queues      text[] NOT NULL,
    manifest    text[] NOT NULL,
    slots       integer NOT NULL,
    state       smallint NOT NULL CHECK (state IN (10, 20, 30, 40)),
    retired     boolean NOT NULL DEFAULT false,
    lease_until timestamptz NOT NULL,
    beat_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz,
    CHECK ((state >= 30) = (ended_at IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.workers.retired IS 'of an earlier version: takes only runs that are bound to it';

-- Proof of death, and a process that registers after another in the same pod.
CREATE INDEX workers_pod ON perdure.workers (pod_uid) WHERE state IN (10, 20);
CREATE INDEX workers_pool ON perdure.workers (namespace, pool) WHERE state IN (10, 20);
-- Rows to forget.
CREATE INDEX workers_ended ON perdure.workers (ended_at) WHERE state IN (30, 40);
