-- Limits of queues: how many runs of a queue run at once, in all, of a worker and of a partition; how many begin in a
-- time; and whether any is taken at all. A queue without a row has none of these.

CREATE TABLE perdure.queues (
    namespace             text COLLATE "C" NOT NULL,
    name                  text COLLATE "C" NOT NULL,
    concurrency           integer CHECK (concurrency > 0),
    worker_concurrency    integer CHECK (worker_concurrency > 0),
    partition_concurrency integer CHECK (partition_concurrency > 0),
    rate_runs             integer CHECK (rate_runs > 0),
    rate_seconds          float8 CHECK (rate_seconds > 0),
    paused                boolean NOT NULL DEFAULT false,
    tokens                float8,
    tokens_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    generation            bigint NOT NULL DEFAULT 1,
    managed_by            text NOT NULL DEFAULT '',
    created_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, name),
    CHECK ((rate_runs IS NULL) = (rate_seconds IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN perdure.queues.tokens IS 'runs that could begin at tokens_at; null: as many as rate_runs';
COMMENT ON COLUMN perdure.queues.generation IS 'counts changes of the limits and pauses';
COMMENT ON COLUMN perdure.queues.managed_by IS 'the resource that says the limits; empty: programs do';

-- What runs now, of a queue and of each partition: nobody counts it on the side, so that nothing can drift. A claim
-- reads no more entries of it than the limit allows, but for dead ones that an old snapshot keeps.
CREATE INDEX workflows_running ON perdure.workflows (namespace, queue, partition_key) WHERE status = 30;

-- How many runs of a queue a claim may take: called by the statement `claim` where the queue has a row, and by nothing
-- else. Locks the row until the statement's transaction is over, so that claims of one queue follow each other. It must
-- be volatile: then each query in here sees what was committed before it, the claims before this one among it, which
-- the statement around it may not see.
-- Whoever else holds the row for longer than a sixth of the session's limit for locks, a second by default, holds up
-- this queue alone: there is no room then, and the worker goes on with its other queues.
-- room: runs in all, null for a queue without a row. rooms: of each of the given partitions, null without such a limit.
-- starts: of runs that begin. tokens, seen_at: what to write back, less the runs that began; null without a rate.
-- again_in: seconds until another may begin.
CREATE FUNCTION perdure.queue_room(
    of_worker text, of_namespace text, of_queue text, wanted integer, partitions text[],
    OUT room integer, OUT rooms integer[], OUT starts integer, OUT tokens float8, OUT seen_at timestamptz,
    OUT again_in float8
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    q perdure.queues;
BEGIN
    PERFORM set_config(
        'lock_timeout', (extract(epoch FROM current_setting('lock_timeout')::interval) * 1000 / 6)::integer::text, true);
    BEGIN
        SELECT k.* INTO q
          FROM perdure.queues k WHERE k.namespace = of_namespace AND k.name = of_queue
           FOR NO KEY UPDATE;
    EXCEPTION WHEN lock_not_available THEN
        room := 0;
        RETURN;
    END;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    room := CASE WHEN q.paused THEN 0 ELSE wanted END;
    IF room > 0 AND q.concurrency IS NOT NULL THEN
        room := least(room, greatest(0, q.concurrency - (
            SELECT count(*)
              FROM (SELECT FROM perdure.workflows w
                     WHERE w.namespace = of_namespace AND w.queue = of_queue AND w.status = 30
                     LIMIT q.concurrency) running)));
    END IF;
    IF room > 0 AND q.worker_concurrency IS NOT NULL THEN
        room := least(room, greatest(0, q.worker_concurrency - (
            SELECT count(*)
              FROM (SELECT FROM perdure.workflows w
                     WHERE w.worker_id = of_worker AND w.status = 30
                       AND w.namespace = of_namespace AND w.queue = of_queue
                     LIMIT q.worker_concurrency) running)));
    END IF;
    IF room > 0 AND q.partition_concurrency IS NOT NULL THEN
        rooms := ARRAY(
            SELECT greatest(0, q.partition_concurrency - (
                   SELECT count(*)
                     FROM (SELECT FROM perdure.workflows w
                            WHERE w.namespace = of_namespace AND w.queue = of_queue AND w.status = 30
                              AND w.partition_key = p.partition_key
                            LIMIT q.partition_concurrency) running))::integer
              FROM unnest(partitions) WITH ORDINALITY p(partition_key, number)
             ORDER BY p.number);
    END IF;
    IF room > 0 AND q.rate_runs IS NOT NULL THEN
        seen_at := clock_timestamp();
        tokens := least(q.rate_runs, coalesce(q.tokens, q.rate_runs)
                        + greatest(0, extract(epoch FROM seen_at - q.tokens_at))::float8
                          * q.rate_runs / q.rate_seconds);
        starts := least(wanted, floor(tokens));
        again_in := (floor(tokens) + 1 - tokens) * q.rate_seconds / q.rate_runs;
    END IF;
END
$$;
