-- Purpose: record what a run did with other runs as its step, in the transaction that did it: both, or neither.
-- Run by: workers for the calls of runs, last before COMMIT, under the lock of manage_lock, which has tested the claim.
-- Locks: the run's held since then, then the step's. Expected index: workflow_steps_pkey. Zero rows: never.
-- Other writes of the run travel beside this one, with higher numbers: `edits` keeps the revision rising.
WITH step AS (
    INSERT INTO perdure.workflow_steps AS t (
        workflow_id, step_index, name, status, fence, seq, started_fence, started_seq, input, output, finished_at)
    VALUES ($1::text, $2::integer, $3::text, 30, $4::bigint, $5::bigint, $4::bigint, $5::bigint, $6::text, $7::text,
            clock_timestamp())
    ON CONFLICT (workflow_id, step_index) DO UPDATE SET
        name = excluded.name,
        status = excluded.status,
        fence = excluded.fence,
        seq = excluded.seq,
        output = excluded.output,
        error = NULL,
        finished_at = excluded.finished_at,
        wake_at = NULL
     WHERE t.status < 30 AND (t.fence, t.seq) < (excluded.fence, excluded.seq)
    RETURNING t.workflow_id
)
UPDATE perdure.workflows w SET edits = w.edits + 1 FROM step WHERE w.id = step.workflow_id RETURNING w.id
