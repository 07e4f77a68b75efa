-- Purpose: put a message into the inbox of a run out of the body of a step, which stands for it: no step is recorded.
-- Run by: workers, while the body runs. Sent again unchanged, with the key of that one call, it is no second message.
-- Locks: the sender's row FOR NO KEY UPDATE, which is the only test of ownership (R1); then the new message; a twin with
-- its key is waited for. A cancel does not matter: one that is graceful lets the step finish. The receiver's row is not
-- touched: it is woken by another statement (R15).
-- Expected index: workflows_pkey, messages_key. Zero rows: the run has another owner, nothing was sent.
-- Not done: there is no such run. A key that the receiver has is done, and no second message.
WITH own AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w
     WHERE w.id = $1::text AND w.worker_id = $2::text AND w.fence = $3::bigint AND w.status + 0 = 30
       FOR NO KEY UPDATE
), known AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w WHERE w.id = $4::text
), message AS (
    INSERT INTO perdure.messages (workflow_id, topic, key, value)
    SELECT known.id, $5::text, $6::text, $7::text FROM own CROSS JOIN known
    ON CONFLICT (workflow_id, key) DO NOTHING
)
SELECT known.id IS NOT NULL AS done FROM own LEFT JOIN known ON true
