-- Purpose: a few steps of a worker's runs, without an ending: the part of journal_commit that a single run needs between
-- its steps. Postgres prepares each part of a statement whether it has rows or not: this one takes it three quarters of
-- the time.
-- Run by: the worker's journal. Locks, indexes, rows and columns: as journal_commit, whose texts these are; a fresh
-- start is looked for like any other.
WITH own AS MATERIALIZED (
    SELECT sent.run::integer AS run, sent.seen, coalesce(w.fence = sent.fence, false) AS mine, w.*
      FROM (SELECT * FROM unnest(string_to_array($1::text, E'\x1f', ''), $2::text::bigint[], $3::text::bigint[])
                   WITH ORDINALITY AS s(id, fence, seen, run)
             ORDER BY s.id COLLATE "C") sent
      LEFT JOIN LATERAL (
           SELECT w.id, w.fence, w.cancel_mode, w.suspended, w.wake_seq,
                  w.run_attempts, w.max_run_attempts, w.recoveries, w.max_recoveries, w.undo
             FROM perdure.workflows w
            -- The sum keeps the partial indexes over states away: a plan made while few rows run, and kept, would
            -- scan all that run now.
            WHERE w.id = sent.id AND w.worker_id = $4::text AND w.status + 0 = 30
              FOR NO KEY UPDATE) w ON true
), steps AS (
    INSERT INTO perdure.workflow_steps AS t (
        workflow_id, step_index, name, status, fence, seq, started_fence, started_seq, attempts, input, output,
        error, attempt_errors, finished_at, wake_at)
    SELECT own.id, r.step_index, r.name, r.status, own.fence, r.seq, own.fence, r.seq, r.attempts,
           coalesce(r.input, ''), r.output, r.error, r.attempt_errors,
           CASE WHEN r.status >= 30 THEN clock_timestamp() END,
           clock_timestamp() + make_interval(secs => r.wake_in)
      FROM unnest($5::text::integer[], $6::text::integer[], $7::text::bigint[],
                  string_to_array($8::text, E'\x1f', ''), $9::text::smallint[],
                  string_to_array($10::text, E'\x1f', ''), string_to_array($11::text, E'\x1f', ''),
                  string_to_array($12::text, E'\x1f', ''), $13::text::integer[],
                  string_to_array($14::text, E'\x1f', ''), $15::text::float8[])
           AS r(run, step_index, seq, name, status, input, output, error, attempts, attempt_errors, wake_in)
      JOIN own ON own.run = r.run
     WHERE own.mine AND NOT (r.status = 10 AND own.cancel_mode IS NOT NULL)
    ON CONFLICT (workflow_id, step_index) DO UPDATE SET
        name = excluded.name,
        status = excluded.status,
        fence = excluded.fence,
        seq = excluded.seq,
        started_fence = CASE WHEN excluded.status = 10 THEN excluded.fence ELSE t.started_fence END,
        started_seq = CASE WHEN excluded.status = 10 THEN excluded.seq ELSE t.started_seq END,
        attempts = excluded.attempts,
        input = CASE WHEN excluded.input = '' THEN t.input ELSE excluded.input END,
        output = excluded.output,
        error = excluded.error,
        attempt_errors = excluded.attempt_errors,
        finished_at = excluded.finished_at,
        wake_at = excluded.wake_at
     WHERE t.status < 30 AND (t.fence, t.seq) < (excluded.fence, excluded.seq)
)
SELECT own.run, own.mine, own.fence, own.cancel_mode, own.suspended, own.wake_seq, NULL::smallint AS ended,
       NULL::boolean AS awaited
  FROM own
 WHERE NOT own.mine OR own.cancel_mode IS NOT NULL OR own.suspended OR own.wake_seq <> own.seen
