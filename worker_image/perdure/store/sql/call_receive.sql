-- Purpose: take the oldest message of a topic out of the inboxes of runs, and record it as the receiver's step.
-- At most one call of a run: two would take the same message.
-- Run by: the worker's journal, after everything the run has pending. Sent again unchanged it has no second effect.
-- Locks: the runs' rows, sorted, FOR NO KEY UPDATE: the only test of ownership, all else hangs on it (R1, R15); then
-- the messages. Found by a locking scan, which a message taken meanwhile does not end.
-- Expected index: the primary keys, messages_inbox.
-- A row for every owned run, with the fence it was found under and the count of wakes of this statement's snapshot,
-- which is older than the lock: a wake since then is none that was seen (R7). Then a row for every call that was done
-- or tried; none for a call whose earlier copy came through (call_fence, call_seq), nor for any with a cancel set.
-- Not done: there is none; then what $11 says is recorded: nothing, that it waits (an end that is recorded stays),
-- or that none came in time.
WITH own AS MATERIALIZED (
    SELECT w.id, w.fence, w.cancel_mode, w.suspended, w.call_fence, w.call_seq
      FROM perdure.workflows w
     WHERE w.id = ANY($1::text[]) AND w.worker_id = $2::text AND w.status + 0 = 30
     ORDER BY w.id
       FOR NO KEY UPDATE
), before AS MATERIALIZED (
    SELECT w.id, w.wake_seq FROM perdure.workflows w WHERE w.id = ANY($1::text[])
), call AS MATERIALIZED (
    SELECT r.*
      FROM unnest($3::text[], $4::bigint[], $5::integer[], $6::bigint[], $7::text[], $8::text[], $9::text[],
                  $10::float8[], $11::text[])
           WITH ORDINALITY AS r(id, fence, step_index, seq, input, output, topic, wake_in, otherwise, n)
      JOIN own ON own.id = r.id AND own.fence = r.fence
     WHERE own.cancel_mode IS NULL AND (own.call_fence, own.call_seq) < (r.fence, r.seq)
), mark AS (
    UPDATE perdure.workflows w
       SET call_fence = c.fence, call_seq = c.seq, edits = w.edits + 1
      FROM (SELECT call.id, call.fence, max(call.seq) AS seq FROM call GROUP BY call.id, call.fence) c
     WHERE w.id = c.id
), found AS MATERIALIZED (
    SELECT call.id, call.step_index, m.id AS message, m.value
      FROM call
     CROSS JOIN LATERAL (
           SELECT i.id, i.value FROM perdure.messages i
            WHERE i.workflow_id = call.id AND i.topic = call.topic AND i.consumed_by IS NULL
            ORDER BY i.id LIMIT 1
              FOR NO KEY UPDATE) m
), taken AS (
    UPDATE perdure.messages m SET consumed_by = found.step_index, announced = true FROM found WHERE m.id = found.message
), step AS (
    INSERT INTO perdure.workflow_steps AS t (
        workflow_id, step_index, name, status, fence, seq, started_fence, started_seq, input, output, finished_at,
        wake_at)
    SELECT call.id, call.step_index, 'perdure.recv', s.status, call.fence, call.seq, call.fence, call.seq, call.input,
           CASE WHEN s.status = 30 THEN coalesce(found.value, 'null') END,
           CASE WHEN s.status = 30 THEN clock_timestamp() END,
           CASE WHEN s.status = 15 THEN clock_timestamp() + make_interval(secs => call.wake_in) END
      FROM call
      LEFT JOIN found ON found.id = call.id
     CROSS JOIN LATERAL (
           SELECT CASE WHEN found.message IS NOT NULL OR call.otherwise = 'none' THEN 30 ELSE 15 END AS status) s
     WHERE found.message IS NOT NULL OR call.otherwise <> 'nothing'
    ON CONFLICT (workflow_id, step_index) DO UPDATE SET
        name = excluded.name,
        status = excluded.status,
        fence = excluded.fence,
        seq = excluded.seq,
        output = excluded.output,
        finished_at = excluded.finished_at,
        wake_at = CASE WHEN excluded.status = 15 THEN coalesce(t.wake_at, excluded.wake_at) END
     WHERE t.status < 30 AND (t.fence, t.seq) < (excluded.fence, excluded.seq)
)
SELECT own.id, own.fence, own.cancel_mode, own.suspended, before.wake_seq,
       NULL::bigint AS seq, NULL::boolean AS done, NULL::text AS output
  FROM own JOIN before ON before.id = own.id
UNION ALL
SELECT call.id, call.fence, NULL, NULL, NULL, call.seq, found.message IS NOT NULL OR call.otherwise = 'none', coalesce(found.value, 'null')
  FROM call LEFT JOIN found ON found.id = call.id
