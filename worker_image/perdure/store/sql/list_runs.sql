-- Purpose: of these runs those that a list asks for, at most $2 of them, newest first if $3; with their payloads if $4. A
-- filter that is null lets all pass. Runs that are about to be removed are no longer there.
-- Run by: clients, and workers for the calls of runs. Locks: none. Expected index: the primary keys.
SELECT h.id, h.namespace, h.name, h.workflow, h.status, h.pool, h.queue, h.priority, h.partition_key, h.version,
       h.parent_id, h.parent_step, h.forked_from, h.forked_at, h.rewinds, h.deduplication_id, h.attributes,
       extract(epoch FROM h.timeout)::float8 AS timeout, h.deadline_at, h.wake_at, h.created_at, h.started_at,
       h.finished_at, h.run_attempts, h.recoveries, h.suspended, h.cancel_mode, h.cancel_reason, h.waiting_for,
       h.worker_id, h.serialization, h.status < 50 AND coalesce(h.undo, 0) > 0 AS undoes, p.input, p.output, p.error
  FROM (SELECT w.*
          FROM perdure.workflows w
         WHERE w.id = ANY($1::text[]) AND NOT w.deleted
           AND ($5::text IS NULL OR w.namespace = $5::text)
           AND ($6::text IS NULL OR starts_with(w.id, $6::text))
           AND ($7::text[] IS NULL OR w.workflow = ANY($7::text[]))
           AND ($8::smallint[] IS NULL OR w.status + 0 = ANY($8::smallint[]))
           AND ($9::text[] IS NULL OR w.queue = ANY($9::text[]))
           AND ($10::text[] IS NULL OR w.pool = ANY($10::text[]))
           AND ($11::text[] IS NULL OR w.version = ANY($11::text[]))
           AND ($12::text IS NULL OR w.parent_id = $12::text)
           AND ($13::text IS NULL OR w.forked_from = $13::text)
           AND ($14::text IS NULL OR w.partition_key = $14::text)
           AND ($15::text IS NULL OR w.attributes @> $15::text::jsonb)
           AND ($16::timestamptz IS NULL OR w.created_at >= $16::timestamptz)
           AND ($17::timestamptz IS NULL OR w.created_at < $17::timestamptz)
           AND ($18::timestamptz IS NULL OR w.finished_at >= $18::timestamptz)
           AND ($19::timestamptz IS NULL OR w.finished_at < $19::timestamptz)
         ORDER BY CASE WHEN $3::boolean THEN w.created_at END DESC, CASE WHEN $3::boolean THEN w.id END DESC,
                  w.created_at, w.id
         LIMIT $2::integer) h
  LEFT JOIN perdure.workflow_payloads p ON $4::boolean AND p.workflow_id = h.id
 ORDER BY CASE WHEN $3::boolean THEN h.created_at END DESC, CASE WHEN $3::boolean THEN h.id END DESC, h.created_at, h.id
