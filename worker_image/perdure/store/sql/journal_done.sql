-- Purpose: the result of a single run, with that of its last step where there is one. What journal_commit says of a
-- success without its arrays, for a run alone.
-- Run by: the worker's journal, for what was never sent before. After a lost answer the same is said by journal_commit.
-- Locks: the run's row FOR NO KEY UPDATE (R1, R15). Expected index: the primary keys.
-- `finished`, `done`: as in journal_next; while the step has to be written again the run does not end.
-- A cancel comes before every other end (R9): `awaited` is null then, as it is for a run that did not end, and the step
-- is recorded all the same.
-- Zero rows: the run is not this worker's under this fence, and nothing was written.
WITH own AS MATERIALIZED (
    SELECT w.cancel_mode, w.suspended, w.wake_seq
      FROM perdure.workflows w
     WHERE w.id = $1::text AND w.worker_id = $2::text AND w.fence = $3::bigint AND w.status + 0 = 30
       FOR NO KEY UPDATE
), finished AS (
    UPDATE perdure.workflow_steps t
       SET status = 30, fence = $3::bigint, seq = $5::bigint, output = $6::text, finished_at = clock_timestamp()
      FROM own
     WHERE t.workflow_id = $1::text AND t.step_index = $4::integer
       AND t.status < 30 AND (t.fence, t.seq) < ($3::bigint, $5::bigint)
    RETURNING t.step_index
), ended AS (
    UPDATE perdure.workflows w
       SET status = 50,
           worker_id = NULL,
           fence = $3::bigint + 1,
           ended_fence = $3::bigint,
           ended_by = $2::text,
           reopen = false,
           wake_at = NULL,
           waiting_for = NULL,
           waiting_since = NULL,
           finished_at = clock_timestamp(),
           status_due_at = clock_timestamp() + interval '3 seconds'
      FROM own
     WHERE w.id = $1::text AND own.cancel_mode IS NULL
       AND ($4::integer IS NULL OR EXISTS (SELECT FROM finished))
    RETURNING w.awaited, w.waited
), payload AS (
    UPDATE perdure.workflow_payloads p SET output = $7::text, error = NULL
      FROM ended
     WHERE p.workflow_id = $1::text
)
SELECT own.cancel_mode, own.suspended, own.wake_seq,
       $4::integer IS NULL OR EXISTS (SELECT FROM finished) AS done,
       ended.awaited, ended.waited
  FROM own
  LEFT JOIN ended ON true
