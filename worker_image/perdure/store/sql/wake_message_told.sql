-- Purpose: the receivers of these messages ($1 with the keys $2) have been woken; after that.
-- Run by: whoever woke them. Locks: the messages, in the order of the lists, which are sorted. Expected index: messages_key. Zero rows: told before, or taken.
WITH message AS MATERIALIZED (
    SELECT m.id
      FROM unnest($1::text[], $2::text[]) AS r(receiver, key)
     CROSS JOIN LATERAL (
           SELECT i.id FROM perdure.messages i
            WHERE i.workflow_id = r.receiver AND i.key = r.key AND NOT i.announced
            LIMIT 1
              FOR NO KEY UPDATE) m
)
UPDATE perdure.messages m SET announced = true FROM message WHERE m.id = message.id RETURNING m.id
