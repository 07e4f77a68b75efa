-- Purpose: whether a message of a topic waits in a run's inbox, and the run's count of wakes, in one snapshot: a message
-- that comes later wakes it later.
-- Run by: the worker, for a receive that is a branch of a select: it takes the message only once it has won.
-- Locks: none. Expected index: workflows_pkey, messages_inbox. Zero rows: the run does not exist.
SELECT w.wake_seq,
       EXISTS (SELECT FROM perdure.messages m
                WHERE m.workflow_id = w.id AND m.topic = $2::text AND m.consumed_by IS NULL) AS there
  FROM perdure.workflows w
 WHERE w.id = $1::text
