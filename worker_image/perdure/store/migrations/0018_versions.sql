-- What each version of a pool's workers has, so that later ones know which runs can go on with them.

CREATE TABLE perdure.worker_versions (
    namespace     text COLLATE "C" NOT NULL,
    pool          text COLLATE "C" NOT NULL,
    version       text COLLATE "C" NOT NULL,
    workflow      text NOT NULL,
    source_hash   text,
    policy        text NOT NULL CHECK (policy IN ('pinned', 'auto', 'patched')),
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, pool, version, workflow)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.worker_versions.source_hash IS 'of the source of the workflow; null: it cannot be read, and equals no other';
COMMENT ON COLUMN perdure.worker_versions.policy IS 'which runs of earlier versions go on with this one';
COMMENT ON COLUMN perdure.worker_versions.registered_at IS 'when a worker of it last came while none was there: the later one is the newer';

-- Runs that are bound to a version and that nobody runs. The sum keeps it from fitting a claim or a sweep. A claim
-- writes no entry, nor does what has never been claimed.
CREATE INDEX workflows_versions ON perdure.workflows (namespace, pool, version, workflow)
    WHERE status + 0 IN (10, 20, 40) AND version IS NOT NULL;
