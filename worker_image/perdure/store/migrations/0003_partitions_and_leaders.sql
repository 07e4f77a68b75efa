-- Fairness within a queue: runs carry a partition (a tenant, a customer), and partitions take turns. Existing rows lie in
-- the one partition that has no name. The index is made anew in this transaction, which holds up writes for as long as
-- reading the table once takes. And leadership without a session, for operators behind a connection pooler.

ALTER TABLE perdure.workflows
    ADD COLUMN partition_key text COLLATE "C" NOT NULL DEFAULT '' CHECK (length(partition_key) <= 255);

COMMENT ON COLUMN perdure.workflows.partition_key IS 'partitions of a queue take turns; empty: in none';

-- Looks for ranges, claim and backlog: ready rows of one namespace, pool, queue, version, route and partition in claim
-- order. What stands before the order are the ranges of which a claim takes the heads: version and route, so that
-- rows which a worker cannot run cost one look-up, however many there are; the partition, so that the partitions
-- with ready rows are found by one look-up each, however many rows they have.
-- No other index may fit a claim: where statistics are old, the planner would take it and sort.
DROP INDEX perdure.workflows_ready;
CREATE INDEX workflows_ready ON perdure.workflows
    (namespace, pool, queue, (coalesce(version, '')), route, partition_key, priority, run_at, id)
    WHERE status = 10 AND (NOT suspended OR cancel_mode IS NOT NULL);

-- Who acts for a name where no session can hold an advisory lock: behind a connection pooler in transaction mode.
CREATE TABLE perdure.leaders (
    name       text COLLATE "C" PRIMARY KEY,
    holder     text COLLATE "C" NOT NULL,
    held_until timestamptz NOT NULL
) WITH (fillfactor = 50);

COMMENT ON COLUMN perdure.leaders.holder IS 'a token of the process, new at each start';
