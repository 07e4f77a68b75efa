-- Purpose: put a message into the inbox of a run, from outside of runs. Sent again unchanged it is no second message.
-- Run by: clients. The receiver is woken by the next statement (wake_runs), or by a sweep.
-- Locks: the new message; a twin with its key is waited for. The receiver's row is not touched.
-- Expected index: workflows_pkey. Zero rows: there is no such run. A key that the receiver has is no message and a row.
WITH known AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w WHERE w.id = $1::text
), message AS (
    INSERT INTO perdure.messages (workflow_id, topic, key, value)
    SELECT known.id, $2::text, $3::text, $4::text FROM known
    ON CONFLICT (workflow_id, key) DO NOTHING
)
SELECT known.id FROM known
