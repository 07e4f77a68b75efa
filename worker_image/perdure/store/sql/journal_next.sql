-- Purpose: from one step to the next, of a single run: the result of the one, the start of the other, or only one of
-- both. What journal_steps says without its arrays: a run alone waits for this at each step, and has its answer in
-- little more than a third of the time.
-- Run by: the worker's journal, for what was never sent before. After a lost answer the same is said by journal_steps.
-- Locks: the run's row FOR NO KEY UPDATE: the only test of ownership (R1, R15). Expected index: the primary keys.
-- `finished`: the step's start was answered, so its row is there; `done` is false if it was not changed, and then it
-- has to be written again. `begun`: nothing is recorded there, as the fresh starts of journal_commit.
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
), begun AS (
    INSERT INTO perdure.workflow_steps (workflow_id, step_index, name, status, fence, seq, started_fence, started_seq,
                                        input)
    SELECT $1::text, $7::integer, $9::text, 10, $3::bigint, $8::bigint, $3::bigint, $8::bigint, $10::text
      FROM own
     WHERE own.cancel_mode IS NULL AND $7::integer IS NOT NULL
)
SELECT own.cancel_mode, own.suspended, own.wake_seq,
       $4::integer IS NULL OR EXISTS (SELECT FROM finished) AS done
  FROM own
