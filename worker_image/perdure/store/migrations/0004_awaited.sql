-- Who wants to hear of a run's end at once: set by a waiting client, answered by the statement that ends the run.
-- In no index, so that setting it stays in place, and with a constant default, so that adding it rewrites nothing.
ALTER TABLE perdure.workflows ADD COLUMN awaited boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN perdure.workflows.awaited IS 'somebody waits for the end: the worker that ends it tells by NOTIFY';
