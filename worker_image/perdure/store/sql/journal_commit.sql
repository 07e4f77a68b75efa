-- Purpose: every durable write of a worker's runs: starts, finishes, attempts and endings of many runs at once.
-- Run by: the worker's journal. Resending it unchanged writes nothing twice (R3, and the fence moved).
-- Locks: the runs' rows, sorted, FOR NO KEY UPDATE: the only lock and the only test of ownership (R1, R15); all
-- else hangs on that one CTE, since sibling CTEs see neither each other's rows nor their locks.
-- Expected index: the primary keys.
-- Rows: what is not as it was hoped for, `run` counting the ids that were sent from 1. First the runs that are not this
-- worker's under the fence that was sent (`mine` false: nothing of them was written; `fence` null: not this worker's at
-- all) and those whose flags have news. Then the endings that gave another status than SUCCEEDED or that somebody
-- wants to hear of: a client (`awaited`), a run that did not start it (`waited`). An ending with a cancel beside it and
-- no row of the second kind was refused: R9.
-- Zero rows: everything was written as it was sent. Most answers are that, and reading rows costs the worker more than
-- the statement costs Postgres.
-- Columns come as one text each, since a driver looks at each element of an array by itself: values between unit
-- separators, which neither names nor JSON hold, an empty one for null; numbers as an array's literal. A column may
-- end early: the rest is null.
-- Kinds of ending: succeeded, failed, cancelled, mismatch, parked, released. A run that has failed for good, or is
-- cancelled, does not end yet if it has steps that are to be undone: it is claimable again, for that and nothing else.
-- Of a cancel only the mode says so: a removal takes its place, as does a graceful one once nothing is there to undo.
-- One that is parked or released with a cancel is cancelled: its queue may be paused or full, and let nobody claim it.
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
), fresh AS (
    -- Starts of steps of which nothing can be there, without the look for it.
    INSERT INTO perdure.workflow_steps (workflow_id, step_index, name, status, fence, seq, started_fence, started_seq,
                                        input)
    SELECT own.id, r.step_index, r.name, 10, own.fence, r.seq, own.fence, r.seq, r.input
      FROM unnest($5::text::integer[], $6::text::integer[], $7::text::bigint[], string_to_array($8::text, E'\x1f', ''),
                  string_to_array($9::text, E'\x1f', '')) AS r(run, step_index, seq, name, input)
      JOIN own ON own.run = r.run
     WHERE own.mine AND own.cancel_mode IS NULL
), steps AS (
    INSERT INTO perdure.workflow_steps AS t (
        workflow_id, step_index, name, status, fence, seq, started_fence, started_seq, attempts, input, output,
        error, attempt_errors, finished_at, wake_at)
    SELECT own.id, r.step_index, r.name, r.status, own.fence, r.seq, own.fence, r.seq, r.attempts,
           coalesce(r.input, ''), r.output, r.error, r.attempt_errors,
           CASE WHEN r.status >= 30 THEN clock_timestamp() END,
           clock_timestamp() + make_interval(secs => r.wake_in)
      FROM unnest($10::text::integer[], $11::text::integer[], $12::text::bigint[],
                  string_to_array($13::text, E'\x1f', ''), $14::text::smallint[],
                  string_to_array($15::text, E'\x1f', ''), string_to_array($16::text, E'\x1f', ''),
                  string_to_array($17::text, E'\x1f', ''), $18::text::integer[],
                  string_to_array($19::text, E'\x1f', ''), $20::text::float8[])
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
), ending AS MATERIALIZED (
    SELECT own.run, own.id, x.kind, x.output, x.error, x.waiting_for, x.reason, own.fence,
           own.run_attempts + (x.kind = 'failed' AND coalesce(own.undo, 0) < 2)::integer AS run_attempts,
           own.recoveries + (x.kind = 'mismatch')::integer AS recoveries,
           CASE x.kind
               WHEN 'succeeded' THEN 50
               WHEN 'cancelled' THEN CASE WHEN own.undo = 1 AND own.cancel_mode = 'Compensate' THEN 10 ELSE 70 END
               WHEN 'failed' THEN CASE WHEN own.undo >= 2 THEN 60
                                       WHEN own.run_attempts + 1 < coalesce(own.max_run_attempts, $32::integer) THEN 20
                                       WHEN own.undo = 0 THEN 10
                                       ELSE 60 END
               WHEN 'mismatch' THEN CASE WHEN own.recoveries + 1 > own.max_recoveries THEN 80 ELSE 20 END
               ELSE CASE WHEN own.undo = 1 AND own.cancel_mode = 'Compensate' THEN 10
                         WHEN own.cancel_mode IS NOT NULL THEN 70
                         WHEN x.kind = 'parked' AND (own.wake_seq = x.wake_seq OR x.wake_seq < 0) THEN 40
                         ELSE 10 END
           END AS status,
           clock_timestamp() + make_interval(secs => CASE x.kind
               WHEN 'failed' THEN least((own.run_attempts + 1) * $29::float8, $31::float8)
               WHEN 'mismatch' THEN least((own.recoveries + 1) * $30::float8, $31::float8)
               ELSE x.wake_in
           END) AS wake_at
      FROM unnest($21::text::integer[], string_to_array($22::text, E'\x1f', ''), $23::text::bigint[],
                  string_to_array($24::text, E'\x1f', ''), string_to_array($25::text, E'\x1f', ''),
                  string_to_array($26::text, E'\x1f', '')::jsonb[], $27::text::float8[],
                  string_to_array($28::text, E'\x1f', ''))
           AS x(run, kind, wake_seq, output, error, waiting_for, wake_in, reason)
      JOIN own ON own.run = x.run
     WHERE own.mine AND (own.cancel_mode IS NULL OR x.kind IN ('cancelled', 'parked', 'released'))
), ended AS (
    UPDATE perdure.workflows w
       SET status = e.status,
           worker_id = NULL,
           fence = e.fence + 1,
           ended_fence = e.fence,
           ended_by = $4::text,
           run_attempts = e.run_attempts,
           recoveries = e.recoveries,
           reopen = e.kind = 'failed' AND e.status = 20,
           undo = CASE WHEN e.kind = 'failed' AND e.status = 10 THEN 2 ELSE w.undo END,
           suspended = w.suspended AND NOT (e.kind = 'failed' AND e.status = 10),
           cancel_reason = CASE WHEN e.kind = 'cancelled' AND e.status = 70 THEN coalesce(w.cancel_reason, e.reason)
                                ELSE w.cancel_reason END,
           wake_at = CASE WHEN e.status IN (20, 40) THEN e.wake_at END,
           waiting_for = CASE WHEN e.status NOT IN (20, 40) THEN NULL
                              WHEN e.wake_at IS NULL THEN e.waiting_for
                              ELSE e.waiting_for || jsonb_build_object('until', e.wake_at) END,
           waiting_since = CASE WHEN e.status < 50 THEN clock_timestamp() END,
           finished_at = CASE WHEN e.status >= 50 THEN clock_timestamp() END,
           status_due_at = clock_timestamp() + interval '3 seconds'
      FROM ending e
     WHERE w.id = e.id
    RETURNING e.run, w.id, w.status, w.fence, w.awaited, w.waited, e.kind, e.output, e.error
), payload AS (
    UPDATE perdure.workflow_payloads p
       SET output = ended.output, error = ended.error
      FROM ended
     WHERE p.workflow_id = ended.id AND ended.kind IN ('succeeded', 'failed', 'mismatch')
)
SELECT own.run, own.mine, own.fence, own.cancel_mode, own.suspended, own.wake_seq, NULL::smallint AS ended,
       NULL::boolean AS awaited, NULL::boolean AS waited
  FROM own
 WHERE NOT own.mine OR own.cancel_mode IS NOT NULL OR own.suspended OR own.wake_seq <> own.seen
UNION ALL
SELECT ended.run, true, ended.fence, NULL, NULL, NULL, ended.status, ended.awaited, ended.waited
  FROM ended
 WHERE ended.status <> 50 OR ended.awaited OR ended.waited
