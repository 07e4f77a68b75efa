-- Purpose: make a run as its resource (or caller) wants it; create it, or change what may change.
-- Run by: the operator's intake, for every resource whose generation moved and at each resync; clients.
-- Locks: the run's row, only when there is something to write.
-- Expected index: workflows_pkey. `written` false: nothing to do, or an older generation than the row's.
-- Zero rows: the same, but only the row's newest version says so, which this statement's snapshot does not show.
-- A cancel ends at once what nobody owns and is a flag for the owner of the rest; it only ever gets stronger. One that
-- compensates makes claimable what nobody owns and has steps to undo; a run that undoes its steps heeds neither a cancel
-- nor `suspended`.
WITH settled AS MATERIALIZED (
    SELECT w.status, w.generation FROM perdure.workflows w
     WHERE w.id = $1::text
       AND (w.deleted OR w.generation > $14::bigint
            OR (w.generation, w.priority, w.timeout, w.suspended, w.max_recoveries, w.max_run_attempts)
               IS NOT DISTINCT FROM ($14::bigint, $8::integer, $9::interval, $10::boolean AND coalesce(w.undo, 0) < 2,
                                     $12::integer, $13::integer)
               AND ($11::text IS NULL OR w.status >= 50 OR w.undo > 0 OR w.cancel_mode IN ($11::text, 'Immediate')))
), up AS (
    INSERT INTO perdure.workflows AS w (
        id, namespace, name, workflow, requires, pool, queue, priority, timeout, suspended, cancel_mode,
        cancel_reason, max_recoveries, max_run_attempts, generation, status, finished_at, waiting_since,
        status_due_at, partition_key)
    SELECT $1::text, $2::text, $3::text, $4::text, $5::text[], $6::text, $7::text, $8::integer, $9::interval,
           $10::boolean, $11::text, CASE WHEN $11::text IS NOT NULL THEN 'cancel was requested' END,
           $12::integer, $13::integer, $14::bigint, CASE WHEN $11::text IS NULL THEN 10 ELSE 70 END,
           CASE WHEN $11::text IS NOT NULL THEN now() END, now(), now(), $17::text
     WHERE NOT EXISTS (SELECT FROM settled)
    ON CONFLICT (id) DO UPDATE SET
        priority = excluded.priority,
        timeout = excluded.timeout,
        deadline_at = CASE WHEN w.timeout IS NOT DISTINCT FROM excluded.timeout THEN w.deadline_at
                           ELSE w.started_at + excluded.timeout END,
        suspended = excluded.suspended AND coalesce(w.undo, 0) < 2,
        max_recoveries = excluded.max_recoveries,
        max_run_attempts = excluded.max_run_attempts,
        generation = excluded.generation,
        cancel_mode = CASE WHEN w.status >= 50 OR w.undo > 0 OR w.cancel_mode = 'Immediate' THEN w.cancel_mode
                           WHEN w.cancel_mode IS NOT NULL AND excluded.cancel_mode = 'Compensate' THEN w.cancel_mode
                           ELSE coalesce(excluded.cancel_mode, w.cancel_mode) END,
        undo = CASE WHEN excluded.cancel_mode = 'Compensate' AND w.undo = 0 AND w.cancel_mode IS NULL AND w.status < 50
                    THEN 1 ELSE w.undo END,
        reopen = w.reopen AND (excluded.cancel_mode = 'Compensate' AND w.undo = 0 AND w.cancel_mode IS NULL) IS NOT TRUE,
        cancel_reason = CASE WHEN w.status >= 50 OR w.undo > 0 THEN w.cancel_reason
                             ELSE coalesce(w.cancel_reason, excluded.cancel_reason) END,
        status = CASE WHEN excluded.cancel_mode IS NULL OR w.status NOT IN (10, 20, 40) OR w.undo > 0 THEN w.status
                      WHEN excluded.cancel_mode = 'Compensate' AND w.undo = 0 AND w.cancel_mode IS NULL THEN 10
                      ELSE 70 END,
        fence = w.fence + (excluded.cancel_mode IS NOT NULL AND w.status IN (10, 20, 40) AND coalesce(w.undo, 0) = 0
                           AND (w.status = 10 AND excluded.cancel_mode = 'Compensate' AND w.undo = 0
                                AND w.cancel_mode IS NULL) IS NOT TRUE)::integer,
        finished_at = CASE WHEN excluded.cancel_mode IS NULL OR w.status NOT IN (10, 20, 40) OR w.undo > 0
                             OR excluded.cancel_mode = 'Compensate' AND w.undo = 0 AND w.cancel_mode IS NULL
                           THEN w.finished_at ELSE clock_timestamp() END,
        wake_at = CASE WHEN excluded.cancel_mode IS NULL OR w.undo > 0 THEN w.wake_at END,
        waiting_for = CASE WHEN (excluded.cancel_mode IS NULL OR w.undo > 0)
                            AND (w.status <> 10 OR w.suspended = excluded.suspended) THEN w.waiting_for END,
        edits = w.edits + 1,
        status_due_at = now()
     WHERE NOT w.deleted AND w.generation <= excluded.generation
       AND ((w.generation, w.priority, w.timeout, w.suspended, w.max_recoveries, w.max_run_attempts)
            IS DISTINCT FROM
            (excluded.generation, excluded.priority, excluded.timeout, excluded.suspended AND coalesce(w.undo, 0) < 2,
             excluded.max_recoveries, excluded.max_run_attempts)
            OR excluded.cancel_mode IS NOT NULL AND w.status < 50 AND coalesce(w.undo, 0) = 0
               AND w.cancel_mode IS DISTINCT FROM excluded.cancel_mode AND w.cancel_mode IS DISTINCT FROM 'Immediate')
    RETURNING w.id, w.edits = 0 AS created, w.status, w.generation
), payload AS (
    INSERT INTO perdure.workflow_payloads (workflow_id, input, definition)
    SELECT up.id, $15::text, $16::text FROM up WHERE up.created
    ON CONFLICT (workflow_id) DO NOTHING
)
SELECT up.created, true AS written, up.status, up.generation FROM up
UNION ALL
SELECT false, false, settled.status, settled.generation FROM settled
