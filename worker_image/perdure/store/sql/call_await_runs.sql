-- Purpose: have runs woken when other runs end, which they have not started. Whoever sends it looks at those runs after
-- it: an end before that is then seen, one later finds the wait.
-- Run by: the worker's journal, after everything the run has pending. Sent again unchanged it has no second effect.
-- Locks: the runs' rows, sorted, FOR NO KEY UPDATE: the only test of ownership, all else hangs on it (R1, R15); then
-- the waits, sorted. The awaited runs' rows are not touched.
-- Expected index: the primary keys.
-- A row for every owned run, with the fence it was found under and the count of wakes of this statement's snapshot,
-- which is older than the lock: a wake since then is none that was seen (R7). Then a row for every call that was done
-- or tried; none for a call whose earlier copy came through (call_fence, call_seq), nor for any with a cancel set.
-- Never done, and no step is written: that it waits is a step's own row, or nobody's. A wait that is there gets the
-- number of this call, so that who told of an earlier end does not forget it. $9: the call's place, $10: a run of it.
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
      FROM unnest($3::text[], $4::bigint[], $5::integer[], $6::bigint[], $7::text[], $8::text[])
           WITH ORDINALITY AS r(id, fence, step_index, seq, input, output, n)
      JOIN own ON own.id = r.id AND own.fence = r.fence
     WHERE own.cancel_mode IS NULL AND (own.call_fence, own.call_seq) < (r.fence, r.seq)
), mark AS (
    UPDATE perdure.workflows w
       SET call_fence = c.fence, call_seq = c.seq, edits = w.edits + 1
      FROM (SELECT call.id, call.fence, max(call.seq) AS seq FROM call GROUP BY call.id, call.fence) c
     WHERE w.id = c.id
), wait AS (
    INSERT INTO perdure.run_waits AS t (run_id, workflow_id, fence, seq)
    SELECT v.run_id, call.id, call.fence, max(call.seq)
      FROM unnest($9::bigint[], $10::text[]) AS v(n, run_id)
      JOIN call ON call.n = v.n
     GROUP BY v.run_id, call.id, call.fence
     ORDER BY v.run_id COLLATE "C", call.id COLLATE "C"
    ON CONFLICT (run_id, workflow_id) DO UPDATE SET fence = excluded.fence, seq = excluded.seq
)
SELECT own.id, own.fence, own.cancel_mode, own.suspended, before.wake_seq,
       NULL::bigint AS seq, NULL::boolean AS done, NULL::text AS output
  FROM own JOIN before ON before.id = own.id
UNION ALL
SELECT call.id, call.fence, NULL, NULL, NULL, call.seq, false, NULL
  FROM call
