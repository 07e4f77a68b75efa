-- Keys of perdure.idempotency: what is being done, or has been, and must not be done again.
CREATE TABLE perdure.idempotency_keys (
    scope      text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    state      smallint NOT NULL CHECK (state IN (10, 20)),
    token      text COLLATE "C" NOT NULL,
    value      text,
    expires_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scope, key)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.idempotency_keys.state IS '10: somebody does it; 20: done';
COMMENT ON COLUMN perdure.idempotency_keys.token IS 'of whoever holds or held it: every later write carries it';
COMMENT ON COLUMN perdure.idempotency_keys.expires_at IS 'end of the lease (10) or of the memory (20), null: never';

-- Removal of what has expired.
CREATE INDEX idempotency_keys_expired ON perdure.idempotency_keys (expires_at) WHERE expires_at IS NOT NULL;
