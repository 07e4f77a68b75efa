-- Purpose: append values to streams of runs, and record the writing as the run's step; a plain write, from inside a
-- step, is recorded nowhere else.
-- Run by: the worker's journal, after everything the run has pending. Sent again unchanged it has no second effect.
-- Locks: the runs' rows, sorted, FOR NO KEY UPDATE: the only test of ownership, all else hangs on it (R1, R15); then
-- the streams, then new values. Runs that wait for them are woken by another statement.
-- Expected index: the primary keys.
-- A row for every owned run, with the fence it was found under and the count of wakes of this statement's snapshot,
-- which is older than the lock: a wake since then is none that was seen (R7). Then a row for every call that was done
-- or tried; none for a call whose earlier copy came through (call_fence, call_seq), nor for any with a cancel set,
-- which does not concern a plain one: its step goes on. Not done: the stream is closed; that leaves no mark, so that a
-- repetition says the same.
-- A value's offset comes from the stream's row as it is once it is locked, never from the snapshot.
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
      FROM unnest($3::text[], $4::bigint[], $5::integer[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[],
                  $11::boolean[])
           WITH ORDINALITY AS r(id, fence, step_index, seq, input, output, key, value, plain, n)
      JOIN own ON own.id = r.id AND own.fence = r.fence
     WHERE (own.cancel_mode IS NULL OR r.plain) AND (own.call_fence, own.call_seq) < (r.fence, r.seq)
), stream AS (
    INSERT INTO perdure.streams AS s (workflow_id, key, length, untold_since)
    SELECT call.id, call.key, count(*), clock_timestamp()
      FROM call
     GROUP BY call.id, call.key
     ORDER BY call.id, call.key
    ON CONFLICT (workflow_id, key) DO UPDATE SET
        length = s.length + excluded.length,
        untold_since = coalesce(s.untold_since, excluded.untold_since)
     WHERE s.closed_by IS NULL
    RETURNING s.workflow_id, s.key, s.length
), placed AS MATERIALIZED (
    SELECT call.id, call.fence, call.step_index, call.seq, call.input, call.output, call.value, call.plain, call.key,
           stream.length - count(*) OVER (PARTITION BY call.id, call.key)
           + row_number() OVER (PARTITION BY call.id, call.key ORDER BY call.seq) - 1 AS "offset"
      FROM call JOIN stream ON stream.workflow_id = call.id AND stream.key = call.key
), mark AS (
    UPDATE perdure.workflows w
       SET call_fence = c.fence, call_seq = c.seq, edits = w.edits + 1
      FROM (SELECT placed.id, placed.fence, max(placed.seq) AS seq FROM placed GROUP BY placed.id, placed.fence) c
     WHERE w.id = c.id
), value AS (
    INSERT INTO perdure.stream_values (workflow_id, key, "offset", value, step_index)
    SELECT placed.id, placed.key, placed."offset", placed.value, placed.step_index FROM placed
), step AS (
    INSERT INTO perdure.workflow_steps AS t (
        workflow_id, step_index, name, status, fence, seq, started_fence, started_seq, input, output, finished_at)
    SELECT placed.id, placed.step_index, 'perdure.write_stream', 30, placed.fence, placed.seq, placed.fence, placed.seq,
           placed.input, placed.output, clock_timestamp()
      FROM placed
     WHERE NOT placed.plain
    ON CONFLICT (workflow_id, step_index) DO UPDATE SET
        name = excluded.name,
        status = excluded.status,
        fence = excluded.fence,
        seq = excluded.seq,
        output = excluded.output,
        finished_at = excluded.finished_at,
        wake_at = NULL
     WHERE t.status < 30 AND (t.fence, t.seq) < (excluded.fence, excluded.seq)
)
SELECT own.id, own.fence, own.cancel_mode, own.suspended, before.wake_seq,
       NULL::bigint AS seq, NULL::boolean AS done, NULL::text AS output
  FROM own JOIN before ON before.id = own.id
UNION ALL
SELECT call.id, call.fence, NULL, NULL, NULL, call.seq, placed.id IS NOT NULL, call.output
  FROM call LEFT JOIN placed ON placed.id = call.id AND placed.seq = call.seq
