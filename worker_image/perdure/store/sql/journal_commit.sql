-- Purpose: every durable write of a worker's runs: starts, finishes, attempts and endings of many runs at once.
-- Run by: the worker's journal. Resending it unchanged writes nothing twice (R3, and the fence moved).
-- Locks: the runs' rows, sorted, FOR NO KEY UPDATE: the only lock and the only test of ownership (R1, R15); all
-- else hangs on that one CTE, since sibling CTEs see neither each other's rows nor their locks.
-- Expected index: the primary keys (workflows_owned for many runs).
-- A row for every owned run, `ended` null, with the fence it was found under: a run without one is not this
-- worker's; one with another fence than was sent was claimed anew by this worker, and nothing of the older claim was
-- written. Then a row for every run that ended, with the fence it has now; none although an ending was sent: refused,
-- because a cancel came first (R9). Not joined here: the planner takes such joins of a few hundred rows for tiny.
-- `awaited`: somebody wants to hear of it at once.
-- Kinds of ending: succeeded, failed, cancelled, mismatch, parked, released.
WITH own AS MATERIALIZED (
    SELECT w.id, w.fence, w.cancel_mode, w.suspended, w.wake_seq,
           w.run_attempts, w.max_run_attempts, w.recoveries, w.max_recoveries
      FROM perdure.workflows w
     WHERE w.id = ANY($1::text[]) AND w.worker_id = $2::text AND w.status = 30
     ORDER BY w.id
       FOR NO KEY UPDATE
), steps AS (
    INSERT INTO perdure.workflow_steps AS t (
        workflow_id, step_index, name, status, fence, seq, started_fence, started_seq, attempts, input, output,
        error, attempt_errors, finished_at, wake_at)
    SELECT r.id, r.step_index, r.name, r.status, r.fence, r.seq, r.fence, r.seq, r.attempts, coalesce(r.input, ''),
           r.output, r.error, r.attempt_errors,
           CASE WHEN r.status >= 30 THEN clock_timestamp() END,
           clock_timestamp() + make_interval(secs => r.wake_in)
      FROM unnest($3::text[], $4::bigint[], $5::integer[], $6::bigint[], $7::text[], $8::smallint[], $9::text[],
                  $10::text[], $11::text[], $12::integer[], $13::text[], $14::float8[])
           AS r(id, fence, step_index, seq, name, status, input, output, error, attempts, attempt_errors, wake_in)
      JOIN own ON own.id = r.id AND own.fence = r.fence
     WHERE NOT (r.status = 10 AND own.cancel_mode IS NOT NULL)
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
    SELECT x.id, x.kind, x.output, x.error, x.waiting_for, x.reason, own.fence,
           own.run_attempts + (x.kind = 'failed')::integer AS run_attempts,
           own.recoveries + (x.kind = 'mismatch')::integer AS recoveries,
           CASE x.kind
               WHEN 'succeeded' THEN 50
               WHEN 'cancelled' THEN 70
               WHEN 'failed' THEN CASE WHEN own.run_attempts + 1 < coalesce(own.max_run_attempts, $27::integer)
                                  THEN 20 ELSE 60 END
               WHEN 'mismatch' THEN CASE WHEN own.recoveries + 1 > own.max_recoveries THEN 80 ELSE 20 END
               WHEN 'parked' THEN CASE WHEN (own.wake_seq = x.wake_seq OR x.wake_seq < 0) AND own.cancel_mode IS NULL
                                  THEN 40 ELSE 10 END
               WHEN 'released' THEN 10
           END AS status,
           clock_timestamp() + make_interval(secs => CASE x.kind
               WHEN 'failed' THEN least((own.run_attempts + 1) * $24::float8, $26::float8)
               WHEN 'mismatch' THEN least((own.recoveries + 1) * $25::float8, $26::float8)
               ELSE x.wake_in
           END) AS wake_at
      FROM unnest($15::text[], $16::bigint[], $17::text[], $18::bigint[], $19::text[], $20::text[], $21::jsonb[],
                  $22::float8[], $23::text[])
           AS x(id, fence, kind, wake_seq, output, error, waiting_for, wake_in, reason)
      JOIN own ON own.id = x.id AND own.fence = x.fence
     WHERE own.cancel_mode IS NULL OR x.kind IN ('cancelled', 'parked', 'released')
), ended AS (
    UPDATE perdure.workflows w
       SET status = e.status,
           worker_id = NULL,
           fence = e.fence + 1,
           ended_fence = e.fence,
           ended_by = $2::text,
           run_attempts = e.run_attempts,
           recoveries = e.recoveries,
           reopen = e.kind = 'failed' AND e.status = 20,
           cancel_reason = CASE WHEN e.status = 70 THEN coalesce(w.cancel_reason, e.reason) ELSE w.cancel_reason END,
           wake_at = CASE WHEN e.status IN (20, 40) THEN e.wake_at END,
           waiting_for = CASE WHEN e.status NOT IN (20, 40) THEN NULL
                              WHEN e.wake_at IS NULL THEN e.waiting_for
                              ELSE e.waiting_for || jsonb_build_object('until', e.wake_at) END,
           waiting_since = CASE WHEN e.status < 50 THEN clock_timestamp() END,
           finished_at = CASE WHEN e.status >= 50 THEN clock_timestamp() END,
           status_due_at = clock_timestamp() + interval '3 seconds'
      FROM ending e
     WHERE w.id = e.id
    RETURNING w.id, w.status, w.fence, w.awaited, e.kind, e.output, e.error
), payload AS (
    UPDATE perdure.workflow_payloads p
       SET output = ended.output, error = ended.error
      FROM ended
     WHERE p.workflow_id = ended.id AND ended.kind IN ('succeeded', 'failed', 'mismatch')
)
SELECT own.id, own.fence, own.cancel_mode, own.suspended, own.wake_seq, NULL::smallint AS ended,
       NULL AS awaited
  FROM own
UNION ALL
SELECT ended.id, ended.fence, NULL, NULL, NULL, ended.status, ended.awaited FROM ended
