-- Purpose: what a test's worker is at: the runs that it has or could have now, the seconds until time brings something
-- to a run, and until a schedule is to be looked at. Of the worker of pool $2 in namespace $1, its queues $3, version $5
-- and registered names $4; what runs under others counts as well.
-- Run by: the testing kit, on a database of a test's own, which is small. Locks: none. One row.
WITH queue AS MATERIALIZED (
    SELECT q.namespace, q.name, q.paused, q.rate_runs IS NULL AS unlimited,
           coalesce(q.tokens, q.rate_runs)
           + greatest(0, extract(epoch FROM clock_timestamp() - q.tokens_at)) * q.rate_runs / q.rate_seconds AS tokens,
           q.rate_seconds / q.rate_runs AS seconds
      FROM perdure.queues q
), ready AS MATERIALIZED (
    SELECT w.id,
           CASE WHEN q.name IS NULL OR q.unlimited OR q.tokens >= 1 THEN NULL
                ELSE make_interval(secs => (1 - q.tokens) * q.seconds) END AS opens_in
      FROM perdure.workflows w
      LEFT JOIN queue q ON q.namespace = w.namespace AND q.name = w.queue
     WHERE w.status = 10 AND (NOT w.suspended OR w.cancel_mode IS NOT NULL)
       AND w.namespace = $1::text AND w.pool = $2::text AND w.queue = ANY($3::text[])
       AND w.requires <@ $4::text[] AND coalesce(w.version, $5::text) = $5::text
       AND q.paused IS NOT TRUE
), busy AS (
    SELECT w.id, w.workflow FROM perdure.workflows w
     WHERE w.status = 30 OR w.id IN (SELECT r.id FROM ready r WHERE r.opens_in IS NULL)
), instant AS (
    SELECT w.wake_at - clock_timestamp() AS left_of_it
      FROM perdure.workflows w WHERE w.status IN (20, 40) AND w.wake_at IS NOT NULL
    UNION ALL
    SELECT w.deadline_at - clock_timestamp() FROM perdure.workflows w WHERE w.deadline_at IS NOT NULL AND w.status < 50
    UNION ALL
    SELECT r.opens_in FROM ready r WHERE r.opens_in IS NOT NULL
)
SELECT ARRAY(SELECT b.id || ' (' || b.workflow || ')' FROM busy b ORDER BY b.id LIMIT 10) AS busy,
       (SELECT min(i.left_of_it) FROM instant i) AS runs_in,
       (SELECT min(s.next_at) - clock_timestamp() FROM perdure.schedules s WHERE NOT s.paused) AS ticks_in,
       ARRAY(SELECT w.id || ' (' || w.workflow || '): ' || coalesce(w.waiting_for->>'message', CASE
                 WHEN w.queue = ANY($3::text[]) THEN 'nobody takes it'
                 ELSE 'its queue ' || w.queue || ' is none of those that are served: see the setting queues' END)
               FROM perdure.workflows w WHERE w.status IN (10, 20, 40) ORDER BY w.id LIMIT 10) AS waits
