-- Purpose: as `claim`, of a queue that has limits: no more runs run at once, or begin in a time, than they say.
-- Run by: the worker's claimer, once `claim` has taken nothing because the queue has a row.
-- Locks: the worker's own row FOR KEY SHARE (R4), the queue's, which claims of the queue hold one after the other, then
-- the taken runs; those that others hold are skipped. Nobody who holds a run's row asks for a queue's.
-- Expected index: workflows_ready as in `claim`; queues_pkey; in the function workflows_running, workflows_owned.
-- `room` says how many may be taken now, of each partition, and of those that begin, which are bound to no version; it
-- sees what is committed once the queue's row is locked, which this statement need not see. `given`, `next` and `pick`
-- are as in `claim`, with these bounds; `paid` takes from the rate what began.
-- A row for every range, without a run where none was taken of it. `room` is null when the queue has no row any more.
WITH me AS MATERIALIZED (
    SELECT k.id, k.retired FROM perdure.workers k
     WHERE k.id = $1::text AND k.state = 10 AND k.lease_until > clock_timestamp()
       FOR KEY SHARE
), room AS MATERIALIZED (
    SELECT r.*
      FROM me
      JOIN perdure.queues q ON q.namespace = $2::text AND q.name = $4::text
     CROSS JOIN LATERAL perdure.queue_room(me.id, q.namespace, q.name, $7::integer, $10::text[]) r
), given AS MATERIALIZED (
    SELECT g.*, least($7::integer, room.rooms[g.number]) AS room,
           CASE WHEN g.version = '' THEN least($7::integer, room.starts) ELSE $7::integer END AS starts
      FROM unnest($8::text[], $9::bigint[], $10::text[], $11::integer[], $12::integer[], $13::timestamptz[],
                  $14::text[]) WITH ORDINALITY
           AS g(version, route, partition_key, turn, priority, run_at, id, number)
      LEFT JOIN room ON true
), next AS MATERIALIZED (
    SELECT g.number, least(g.room, g.starts, room.room)::bigint AS runs
      FROM given g LEFT JOIN room ON true
     WHERE cardinality($8::text[]) = 1
    UNION ALL
    SELECT head.number, count(*) AS runs
      FROM (SELECT nth.number
              FROM (SELECT place.*, row_number() OVER (PARTITION BY place.begins ORDER BY place.nth, place.turn) AS start
                      FROM (SELECT g.number, g.turn, g.room, g.starts, g.version = '' AS begins,
                                   row_number() OVER (PARTITION BY g.turn ORDER BY h.priority, h.run_at, h.id) AS nth
                              FROM (SELECT least($7::integer, 2 * $7::integer / (max(g.turn) + 1) + 1) AS most
                                      FROM given g) share
                             CROSS JOIN given g
                             CROSS JOIN LATERAL (
                                   SELECT w.priority, w.run_at, w.id
                                     FROM perdure.workflows w
                                    WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
                                      AND w.namespace = $2::text AND w.pool = $3::text AND w.queue = $4::text
                                      AND coalesce(w.version, '') = g.version AND w.route = g.route
                                      AND w.partition_key = g.partition_key
                                      AND (w.priority, w.run_at, w.id) >= (g.priority, g.run_at, g.id)
                                    ORDER BY w.priority, w.run_at, w.id LIMIT least(share.most, g.room, g.starts)) h
                             WHERE cardinality($8::text[]) > 1) place
                     WHERE place.nth <= place.room) nth
             WHERE nth.start <= nth.starts
             ORDER BY nth.nth, nth.turn
             LIMIT (SELECT least($7::integer, min(room.room)) FROM room)) head
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
), paid AS (
    UPDATE perdure.queues q
       SET tokens = room.tokens - begun.runs, tokens_at = room.seen_at
      FROM room, (SELECT count(*) AS runs FROM taken JOIN given g ON g.number = taken.number
                   WHERE taken.status = 30 AND g.version = '') begun
     WHERE q.namespace = $2::text AND q.name = $4::text AND room.seen_at IS NOT NULL AND begun.runs > 0
)
SELECT g.number, taken.id, taken.status, taken.fence, taken.namespace, taken.name, taken.workflow, taken.run_attempts,
       taken.max_run_attempts, taken.recoveries, taken.wake_seq, taken.cancel_mode, taken.suspended, taken.priority,
       taken.run_at, taken.parent_id, taken.rewinds, taken.seed, taken.undo,
       taken.serialization, taken.deadline_in,
       taken.ready_seconds, coalesce(p.input, '') AS input, p.definition,
       room.room, room.starts, room.again_in
  FROM given g
  LEFT JOIN room ON true
  LEFT JOIN taken ON taken.number = g.number
  LEFT JOIN perdure.workflow_payloads p ON p.workflow_id = taken.id AND taken.status = 30
 ORDER BY taken.priority, taken.run_at, taken.id
