-- Purpose: postpone a debounced run that has not become claimable yet by $4 seconds from now, but to no later than $5
-- seconds after its creation, and give it another input.
-- Run by: clients and workers, in the transaction that holds its key.
-- Locks: the run's row. Expected index: the primary keys.
-- Zero rows: it has become claimable, was cancelled, or is gone; the call needs a new run. A run that waits for another
-- attempt is no such run, it has started.
WITH run AS MATERIALIZED (
    SELECT w.id, least(clock_timestamp() + make_interval(secs => $4::float8),
                       w.created_at + make_interval(secs => $5::float8)) AS begin_at
      FROM perdure.workflows w
     WHERE w.id = $1::text AND w.namespace = $2::text AND w.workflow = $3::text
       AND w.status = 20 AND w.started_at IS NULL AND w.cancel_mode IS NULL AND NOT w.deleted
       FOR NO KEY UPDATE
), moved AS (
    UPDATE perdure.workflows w
       SET run_at = run.begin_at,
           wake_at = run.begin_at,
           fence = w.fence + 1,
           waiting_for = jsonb_build_object('kind', 'StartDelayed', 'message', 'it was started with a delay',
                                            'until', run.begin_at),
           status_due_at = clock_timestamp()
      FROM run
     WHERE w.id = run.id
    RETURNING w.id
), payload AS (
    UPDATE perdure.workflow_payloads p SET input = $6::text FROM moved WHERE p.workflow_id = moved.id
)
SELECT moved.id FROM moved
