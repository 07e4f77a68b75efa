-- Purpose: the outcome of a step in the transaction of its own body's SQL: both are committed, or neither.
-- Run by: perdure.transaction, last before COMMIT. The journal's shape for one run.
-- Locks: the run's row, then the step's. Only here, so that a long body does not keep a reclaim, a cancel or a message
-- waiting. Expected index: the primary keys.
-- Zero rows: the run is not this claim's any more, and all of the transaction has to go. `written` false: the step is
-- recorded already.
-- Other writes of the run travel beside this one, with higher numbers: `edits` keeps the revision rising (the sum of
-- both is what counts).
WITH own AS MATERIALIZED (
    SELECT w.id, w.cancel_mode, w.suspended, w.wake_seq
      FROM perdure.workflows w
     WHERE w.id = $1::text AND w.worker_id = $2::text AND w.fence = $3::bigint AND w.status + 0 = 30
       FOR NO KEY UPDATE
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
SELECT own.cancel_mode, own.suspended, own.wake_seq, EXISTS (SELECT FROM step) AS written FROM own
