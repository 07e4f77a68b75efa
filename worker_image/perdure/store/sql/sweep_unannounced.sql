-- Purpose: messages whose receiver may not have been woken, for longer than the sender's worker takes to do it.
-- Run by: every sweeper, bounded. Locks: none. Expected index: messages_unannounced. Zero rows: all are announced.
SELECT m.workflow_id, m.topic, m.key
  FROM perdure.messages m
 WHERE NOT m.announced AND m.sent_at <= now() - make_interval(secs => $2::float8)
 ORDER BY m.sent_at LIMIT $1::integer
