-- Purpose: traces of bodies and of every write, on the faults' own database. Run by: the harness, once.
-- The writer of a row is known by its session's application_name, which is a worker's id for everything that a worker
-- writes for its runs. A proxy may put a ~ before it, so that a dead worker's sessions are not found and ended, as
-- behind a pooler.
CREATE SCHEMA faults;

CREATE TABLE faults.effects (
    id          uuid PRIMARY KEY,
    number      bigserial,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    run         text NOT NULL,
    step_index  integer NOT NULL,
    key         text NOT NULL,
    fence       bigint NOT NULL,
    attempt     integer NOT NULL,
    worker      text NOT NULL,
    asked       float8 NOT NULL,
    run_fence   bigint,
    run_status  smallint,
    run_worker  text,
    step_status smallint,
    step_fence  bigint
);
COMMENT ON COLUMN faults.effects.asked IS 'when, by the clock of the machine that only goes forward';
CREATE INDEX ON faults.effects (run, step_index);

-- What steps come to under idempotency keys.
CREATE TABLE faults.keyed (
    id         uuid PRIMARY KEY,
    number     bigserial,
    run        text NOT NULL,
    step_index integer NOT NULL,
    scope      text NOT NULL,
    key        text NOT NULL,
    how        text NOT NULL,
    phase      text NOT NULL,
    token      text NOT NULL,
    fence      bigint NOT NULL,
    run_fence  bigint,
    key_state  smallint
);

-- Children too may be taken over as often as faults will have it.
ALTER TABLE perdure.workflows ALTER COLUMN max_recoveries SET DEFAULT 100000;

-- What steps write in the transaction of their own outcome. No key: a second row is what is looked for.
CREATE TABLE faults.once (run text NOT NULL, step_index integer NOT NULL);

CREATE TABLE faults.step_writes (
    number      bigserial,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    app         text NOT NULL,
    run         text NOT NULL,
    step_index  integer NOT NULL,
    old_status  smallint,
    old_fence   bigint,
    old_seq     bigint,
    status      smallint,
    fence       bigint,
    seq         bigint,
    run_status  smallint,
    run_fence   bigint,
    run_worker  text,
    run_cancel  text,
    ended_fence bigint,
    ended_by    text,
    ended_here  boolean,
    run_deleted boolean
);
CREATE INDEX ON faults.step_writes (run);

CREATE TABLE faults.run_writes (
    number       bigserial,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    app          text NOT NULL,
    run          text NOT NULL,
    old_status   smallint,
    old_fence    bigint,
    old_worker   text,
    status       smallint,
    fence        bigint,
    worker       text,
    worker_state smallint,
    old_recoveries integer,
    recoveries   integer,
    rewound      boolean,
    removed      boolean
);
COMMENT ON COLUMN faults.run_writes.worker_state IS 'of the new owner at a claim, of the old one otherwise';
CREATE INDEX ON faults.run_writes (run);
CREATE INDEX ON faults.run_writes (number);

CREATE FUNCTION faults.writer() RETURNS text STABLE LANGUAGE sql
    RETURN ltrim(current_setting('application_name'), '~');

CREATE FUNCTION faults.step_written() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    w record;
BEGIN
    SELECT r.status, r.fence, r.worker_id, r.cancel_mode, r.ended_fence, r.ended_by, r.xmin = pg_current_xact_id()::xid AS here,
           r.deleted
      INTO w FROM perdure.workflows r WHERE r.id = coalesce(new.workflow_id, old.workflow_id);
    INSERT INTO faults.step_writes (app, run, step_index, old_status, old_fence, old_seq, status, fence, seq,
                                    run_status, run_fence, run_worker, run_cancel, ended_fence, ended_by, ended_here,
                                    run_deleted)
    VALUES (faults.writer(), coalesce(new.workflow_id, old.workflow_id), coalesce(new.step_index, old.step_index),
            old.status, old.fence, old.seq, new.status, new.fence, new.seq,
            w.status, w.fence, w.worker_id, w.cancel_mode, w.ended_fence, w.ended_by, w.here, w.deleted);
    RETURN NULL;
END $$;

CREATE FUNCTION faults.run_written() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO faults.run_writes (app, run, old_status, old_fence, old_worker, status, fence, worker,
                                   old_recoveries, recoveries, rewound, removed, worker_state)
    VALUES (faults.writer(), coalesce(new.id, old.id), old.status, old.fence, old.worker_id,
            new.status, new.fence, new.worker_id, old.recoveries, new.recoveries, new.rewinds = old.rewinds + 1,
            tg_op = 'DELETE' AND old.deleted AND old.status >= 50,
            (SELECT k.state FROM perdure.workers k
              WHERE k.id = CASE WHEN old.status = 10 AND new.status = 30 THEN new.worker_id ELSE old.worker_id END));
    RETURN NULL;
END $$;

-- Outcomes: written only by whoever ends the run in the same transaction, and taken away by what makes it claimable.
CREATE FUNCTION faults.payload_written() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM perdure.workflows r
                    WHERE r.id = new.workflow_id AND r.xmin = pg_current_xact_id()::xid
                      AND (r.ended_by = faults.writer()
                           OR new.output IS NULL AND new.error IS NULL AND r.status = 10 AND r.worker_id IS NULL)) THEN
        INSERT INTO faults.run_writes (app, run, old_status, status) VALUES (faults.writer(), new.workflow_id, 99, 98);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER faults AFTER INSERT OR UPDATE OR DELETE ON perdure.workflow_steps
    FOR EACH ROW EXECUTE FUNCTION faults.step_written();
CREATE TRIGGER faults AFTER INSERT OR UPDATE OF status, fence, worker_id OR DELETE ON perdure.workflows
    FOR EACH ROW EXECUTE FUNCTION faults.run_written();
CREATE TRIGGER faults AFTER UPDATE OF output, error ON perdure.workflow_payloads
    FOR EACH ROW EXECUTE FUNCTION faults.payload_written();

-- What passes the first net: Postgres refuses this row, and with it everything in its statement.
ALTER TABLE perdure.workflow_steps ADD CONSTRAINT faults_refuse CHECK (output NOT LIKE '%refused by the database%');

CREATE VIEW faults.zombie_step_writes AS
SELECT s.*
  FROM faults.step_writes s
 CROSS JOIN LATERAL (SELECT s.old_status = 40 AND s.status = 20
                            AND (s.fence, s.seq) = (s.old_fence, s.old_seq) AND s.run_worker IS NULL
                            -- A start that runs again what has failed may come from anywhere.
                            AND (s.app = 'perdure-sweeper' AND s.run_status IN (10, 20) OR s.run_status IN (60, 80))
                            AS reopened) AS by_retry
 WHERE NOT coalesce(by_retry.reopened, false)
   -- A rewind takes the steps away of a run that it makes claimable.
   AND NOT coalesce(s.status IS NULL AND s.run_status = 10 AND s.run_worker IS NULL AND s.ended_here, false)
   -- What is to be removed goes once it has ended.
   AND NOT coalesce(s.status IS NULL AND s.run_status >= 50 AND s.run_deleted, false)
   AND NOT (coalesce(s.run_status = 30 AND s.run_worker = s.app AND s.run_fence = s.fence
                     OR s.ended_here AND s.ended_by = s.app AND s.ended_fence = s.fence, false)
            AND coalesce(s.old_status, 0) < 30
            AND (s.old_fence IS NULL OR (s.old_fence, s.old_seq) < (s.fence, s.seq)));

CREATE VIEW faults.zombie_run_writes AS
SELECT r.*
  FROM faults.run_writes r
 WHERE r.old_status IS NOT NULL AND r.removed IS NOT TRUE
   AND (r.status, r.fence, r.worker) IS DISTINCT FROM (r.old_status, r.old_fence, r.old_worker)
   AND NOT coalesce(
       r.fence = r.old_fence + 1 AND CASE
           WHEN r.old_status = 10 AND r.status = 30 THEN r.worker = r.app AND r.worker_state = 10
           WHEN r.old_status = 30 THEN r.worker IS NULL AND (r.app = r.old_worker OR r.worker_state IN (30, 40))
           WHEN r.old_status IN (10, 20, 40) THEN r.worker IS NULL AND r.status <> 30
           WHEN r.old_status = 50 THEN r.worker IS NULL AND r.status = 10 AND r.rewound
           WHEN r.old_status IN (60, 80) THEN r.worker IS NULL AND r.status = 10
       END, false)
