-- Purpose: take up to $7 ready runs of one namespace, pool and queue from ranges of the index (version, route,
-- partition) that are known to have some, each from a place on: $8 to $14, one element a range.
-- Run by: the worker's claimer, for each of its queues while it has free slots.
-- Locks: the worker's own row FOR KEY SHARE (R4: whoever marks it dead waits, and this statement takes nothing
-- once it is marked), then the taken runs; those that others hold are skipped.
-- Expected index: workflows_ready, one range scan for each of the ranges, from its place on: entries of runs that were
-- claimed before it are not read, however long an old snapshot keeps them from being removed.
-- Order: partitions take turns, in the order of $11 (ranges of one partition have the same number there); within a
-- partition priority, place in the queue, id. `next` looks without locking how $7 runs divide among the ranges, `pick`
-- locks so many of each: no more rows are locked than are taken. With one range there is nothing to divide; of many
-- partitions each is read only to twice its equal share, so that a claim reads about $7 rows, not $7 of each.
-- A run whose deadline has passed is ended here as the sweep would end it: were it passed over, every claim would
-- read all such runs again until the sweep has come to them. One that undoes its steps has no deadline any more.
-- Of a queue that has limits nothing is taken here: `claim_limited` does, which costs more. `refused` is true then, and
-- when the worker is not live.
-- A row for every range, without a run where none was taken of it, so that the caller knows which are used up.
WITH me AS MATERIALIZED (
    SELECT k.id, k.retired FROM perdure.workers k
     WHERE k.id = $1::text AND k.state = 10 AND k.lease_until > clock_timestamp()
       AND NOT EXISTS (SELECT FROM perdure.queues q WHERE q.namespace = $2::text AND q.name = $4::text)
       FOR KEY SHARE
), given AS MATERIALIZED (
    SELECT g.* FROM unnest($8::text[], $9::bigint[], $10::text[], $11::integer[], $12::integer[], $13::timestamptz[],
                           $14::text[]) WITH ORDINALITY
           AS g(version, route, partition_key, turn, priority, run_at, id, number)
), next AS MATERIALIZED (
    SELECT g.number, $7::bigint AS runs FROM given g WHERE cardinality($8::text[]) = 1
    UNION ALL
    SELECT head.number, count(*) AS runs
      FROM (SELECT g.number
              FROM (SELECT least($7::integer, 2 * $7::integer / (max(g.turn) + 1) + 1) AS most FROM given g) share
             CROSS JOIN given g
             CROSS JOIN LATERAL (
                   SELECT w.priority, w.run_at, w.id
                     FROM perdure.workflows w
                    WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
                      AND w.namespace = $2::text AND w.pool = $3::text AND w.queue = $4::text
                      AND coalesce(w.version, '') = g.version AND w.route = g.route
                      AND w.partition_key = g.partition_key
                      AND (w.priority, w.run_at, w.id) >= (g.priority, g.run_at, g.id)
                    ORDER BY w.priority, w.run_at, w.id LIMIT share.most) h
             WHERE cardinality($8::text[]) > 1
             ORDER BY row_number() OVER (PARTITION BY g.turn ORDER BY h.priority, h.run_at, h.id), g.turn
             LIMIT $7::integer) head
     GROUP BY head.number
), pick AS MATERIALIZED (
    SELECT g.number, p.id, p.waiting_since, coalesce(p.deadline_at <= clock_timestamp() AND NOT p.undoing, false) AS late
      FROM me
     CROSS JOIN next
      JOIN given g ON g.number = next.number
     CROSS JOIN LATERAL (
           SELECT w.id, w.waiting_since, w.deadline_at, coalesce(w.undo > 0, false) AS undoing
             FROM perdure.workflows w
            WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
              AND w.namespace = $2::text AND w.pool = $3::text AND w.queue = $4::text
              AND coalesce(w.version, '') = g.version AND w.route = g.route AND w.partition_key = g.partition_key
              AND (w.priority, w.run_at, w.id) >= (g.priority, g.run_at, g.id)
              AND w.requires <@ $5::text[]
            ORDER BY w.priority, w.run_at, w.id LIMIT next.runs
              FOR NO KEY UPDATE SKIP LOCKED) p
     WHERE CASE WHEN g.version = '' THEN NOT me.retired ELSE g.version = $6::text END
), taken AS (
    UPDATE perdure.workflows w
       SET status = CASE WHEN pick.late THEN 70 ELSE 30 END,
           worker_id = CASE WHEN NOT pick.late THEN me.id END,
           fence = w.fence + 1,
           edits = CASE WHEN pick.late THEN w.edits + 1 ELSE 0 END,
           version = CASE WHEN pick.late THEN w.version ELSE coalesce(w.version, nullif($6::text, '')) END,
           started_at = CASE WHEN pick.late THEN w.started_at ELSE coalesce(w.started_at, clock_timestamp()) END,
           deadline_at = coalesce(w.deadline_at, clock_timestamp() + w.timeout),
           cancel_mode = CASE WHEN pick.late THEN 'Immediate' ELSE w.cancel_mode END,
           cancel_reason = CASE WHEN pick.late THEN coalesce(w.cancel_reason, 'its deadline has passed')
                                ELSE w.cancel_reason END,
           cancel_cause = CASE WHEN pick.late AND w.cancel_mode IS NULL THEN 1 ELSE w.cancel_cause END,
           finished_at = CASE WHEN pick.late THEN clock_timestamp() END,
           wake_at = NULL,
           waiting_for = NULL,
           waiting_since = NULL,
           status_due_at = clock_timestamp() + CASE WHEN pick.late THEN interval '0' ELSE interval '3 seconds' END
      FROM me, pick
     WHERE w.id = pick.id
    RETURNING pick.number, w.id, w.status, w.fence, w.namespace, w.name, w.workflow, w.run_attempts,
              w.max_run_attempts, w.recoveries, w.wake_seq, w.cancel_mode, w.suspended, w.priority, w.run_at,
              w.parent_id, w.rewinds, w.seed, w.undo, w.serialization,
              CASE WHEN w.undo > 0 THEN NULL
                   ELSE extract(epoch FROM w.deadline_at - clock_timestamp())::float8 END AS deadline_in,
              extract(epoch FROM clock_timestamp() - pick.waiting_since)::float8 AS ready_seconds
)
SELECT g.number, taken.id, taken.status, taken.fence, taken.namespace, taken.name, taken.workflow, taken.run_attempts,
       taken.max_run_attempts, taken.recoveries, taken.wake_seq, taken.cancel_mode, taken.suspended, taken.priority,
       taken.run_at, taken.parent_id, taken.rewinds, taken.seed, taken.undo,
       taken.serialization, taken.deadline_in,
       taken.ready_seconds, coalesce(p.input, '') AS input, p.definition,
       (SELECT count(*) FROM me) = 0 AS refused
  FROM given g
  LEFT JOIN taken ON taken.number = g.number
  LEFT JOIN perdure.workflow_payloads p ON p.workflow_id = taken.id AND taken.status = 30
 ORDER BY taken.priority, taken.run_at, taken.id
