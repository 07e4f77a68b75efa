-- Purpose: write down which step is to undo another one, before that one's first attempt begins.
-- Run by: workers, for step calls that say so. Sent again it writes the same.
-- Locks: the run's row FOR NO KEY UPDATE: the only test of ownership (R1). Expected index: the primary keys.
-- A cancel comes first: then nothing is written, as no start of a step would be.
-- Zero rows: the run is not this worker's under this fence.
WITH own AS MATERIALIZED (
    SELECT w.id, w.undo, w.cancel_mode, w.suspended, w.wake_seq
      FROM perdure.workflows w
     WHERE w.id = $1::text AND w.worker_id = $2::text AND w.fence = $3::bigint AND w.status + 0 = 30
       FOR NO KEY UPDATE
), promised AS (
    INSERT INTO perdure.undos (workflow_id, step_index, name, input)
    SELECT own.id, $4::integer, $5::text, $6::text FROM own WHERE own.cancel_mode IS NULL
    ON CONFLICT (workflow_id, step_index) DO UPDATE SET name = excluded.name, input = excluded.input
), marked AS (
    UPDATE perdure.workflows w SET undo = 0 FROM own WHERE w.id = own.id AND own.undo IS NULL AND own.cancel_mode IS NULL
)
SELECT own.cancel_mode, own.suspended, own.wake_seq FROM own
