-- Purpose: put a message into the inbox of a run that has not ended. Sent again unchanged it is no second message.
-- Run by: the operator, for a WorkflowSignal. The receiver is woken by the next statement (wake_runs), or by a sweep.
-- Locks: the new message; a twin with its key is waited for. The receiver's row is not touched: one that ends meanwhile
-- keeps the message unread.
-- Expected index: workflows_pkey, messages_key. Zero rows: there is no such run. `has_it`: the message is there, now or
-- since an earlier copy, which also a run that has ended since then may have.
WITH known AS MATERIALIZED (
    SELECT w.id, w.status FROM perdure.workflows w WHERE w.id = $1::text
), message AS (
    INSERT INTO perdure.messages AS m (workflow_id, topic, key, value)
    SELECT known.id, $2::text, $3::text, $4::text FROM known WHERE known.status < 50
    ON CONFLICT (workflow_id, key) DO UPDATE SET key = m.key
    RETURNING m.workflow_id
)
SELECT known.status,
       EXISTS (SELECT FROM message)
       OR EXISTS (SELECT FROM perdure.messages m WHERE m.workflow_id = known.id AND m.key = $3::text) AS has_it
  FROM known
