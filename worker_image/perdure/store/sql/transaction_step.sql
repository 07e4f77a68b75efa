-- Purpose: the outcome of a step in the transaction of its own body's SQL: both are committed, or neither.
-- Run by: perdure.transaction, last before COMMIT. The journal's shape for one run.
-- Locks: the run's row, then the step's. Only here, so that a long body does not keep a reclaim, a cancel or a message
-- waiting; from here on with limits of the engine's ($10, $11), since the user's were for the user's statements. They
-- are set before the lock is waited for, as the row that is locked comes out of the join with them.
-- Expected index: the primary keys.
-- One row always, but where the body has passed over an error of its SQL: that fails with 25P02. `same` false: it is not
-- the transaction that was marked (transaction_begin), nothing was written. Else `written` false: the run is not this
-- claim's any more, or the step is recorded already, and all of the transaction has to go.
-- Other writes of the run travel beside this one, with higher numbers: `edits` keeps the revision rising (the sum of
-- both is what counts).
WITH limits AS MATERIALIZED (
    SELECT coalesce(current_setting('perdure.transaction', true), '') = $9::text AS same,
           set_config('lock_timeout', $10::text, true) AS lock_timeout,
           set_config('idle_in_transaction_session_timeout', $11::text, true) AS idle_timeout
), own AS MATERIALIZED (
    SELECT w.id, w.cancel_mode, w.suspended, w.wake_seq
      FROM perdure.workflows w, limits
     WHERE w.id = $1::text AND w.worker_id = $2::text AND w.fence = $3::bigint AND w.status + 0 = 30 AND limits.same
       FOR NO KEY UPDATE OF w
), step AS (
    UPDATE perdure.workflow_steps s
       SET status = 30,
           fence = $3::bigint,
           seq = $5::bigint,
           attempts = $6::integer,
           output = $7::text,
           error = NULL,
           attempt_errors = $8::text,
           finished_at = clock_timestamp(),
           wake_at = NULL
      FROM own
     WHERE s.workflow_id = own.id AND s.step_index = $4::integer
       AND s.status < 30 AND (s.fence, s.seq) < ($3::bigint, $5::bigint)
    RETURNING s.workflow_id
), edited AS (
    UPDATE perdure.workflows w SET edits = w.edits + 1 FROM step WHERE w.id = step.workflow_id
)
SELECT limits.same, own.cancel_mode, own.suspended, own.wake_seq, EXISTS (SELECT FROM step) AS written
  FROM limits LEFT JOIN own ON true
