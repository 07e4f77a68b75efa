-- Purpose: have runs woken when something is written to streams, and record that they wait. Whoever sends it looks at the
-- stream after it: a value written before that is then seen, one written later finds the wait.
-- Run by: the worker's journal, after everything the run has pending. Sent again unchanged it has no second effect.
-- Locks: the runs' rows, sorted, FOR NO KEY UPDATE: the only test of ownership, all else hangs on it (R1, R15); then
-- the waits.
-- Expected index: the primary keys.
-- A row for every owned run, with the fence it was found under and the count of wakes of this statement's snapshot,
-- which is older than the lock: a wake since then is none that was seen (R7). Then a row for every call that was done
-- or tried; none for a call whose earlier copy came through (call_fence, call_seq), nor for any with a cancel set.
-- Never done. An end that is recorded stays.
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
                  $10::text[], $11::bigint[], $12::float8[])
           WITH ORDINALITY AS r(id, fence, step_index, seq, input, output, writer, key, "offset", wake_in, n)
      JOIN own ON own.id = r.id AND own.fence = r.fence
     WHERE own.cancel_mode IS NULL AND (own.call_fence, own.call_seq) < (r.fence, r.seq)
), mark AS (
    UPDATE perdure.workflows w
       SET call_fence = c.fence, call_seq = c.seq, edits = w.edits + 1
      FROM (SELECT call.id, call.fence, max(call.seq) AS seq FROM call GROUP BY call.id, call.fence) c
     WHERE w.id = c.id
), wait AS (
    INSERT INTO perdure.stream_waits (run_id, key, workflow_id, step_index, "offset")
    SELECT call.writer, call.key, call.id, call.step_index, call."offset"
      FROM call
     ORDER BY call.writer, call.key, call.id, call.step_index
    ON CONFLICT DO NOTHING
), step AS (
    INSERT INTO perdure.workflow_steps AS t (
        workflow_id, step_index, name, status, fence, seq, started_fence, started_seq, input, wake_at)
    SELECT call.id, call.step_index, 'perdure.read_stream', 15, call.fence, call.seq, call.fence, call.seq, call.input,
           clock_timestamp() + make_interval(secs => call.wake_in)
      FROM call
    ON CONFLICT (workflow_id, step_index) DO UPDATE SET
        name = excluded.name,
        status = excluded.status,
        fence = excluded.fence,
        seq = excluded.seq,
        wake_at = CASE WHEN excluded.status = 15 THEN coalesce(t.wake_at, excluded.wake_at) END
     WHERE t.status < 30 AND (t.fence, t.seq) < (excluded.fence, excluded.seq)
)
SELECT own.id, own.fence, own.cancel_mode, own.suspended, before.wake_seq,
       NULL::bigint AS seq, NULL::boolean AS done, NULL::text AS output
  FROM own JOIN before ON before.id = own.id
UNION ALL
SELECT call.id, call.fence, NULL, NULL, NULL, call.seq, false, NULL
  FROM call
