-- Purpose: runs that nobody has taken for $3 seconds: those without a reason for it, longest waiting first, then
-- (at least a quarter) some whose reason may have changed, going round from the id $4.
-- Run by: the operator, every second or two for each namespace. Locks: none.
-- Expected index: workflows_unexplained, workflows_explained. Zero rows: everything is taken at once.
-- Not `namespace = $1` below: the planner would then walk the primary key through ended runs.
SELECT u.* FROM (
    (SELECT w.id, w.fence, w.name, w.pool, w.queue, w.requires, w.version, w.suspended, w.waiting_for, w.waiting_since,
            w.partition_key
       FROM perdure.workflows w
      WHERE w.namespace = $1::text AND w.status = 10 AND w.waiting_for IS NULL
        AND w.waiting_since <= now() - make_interval(secs => $3::float8)
      ORDER BY w.waiting_since LIMIT $2::integer - $2::integer / 4)
    UNION ALL
    (SELECT w.id, w.fence, w.name, w.pool, w.queue, w.requires, w.version, w.suspended, w.waiting_for, w.waiting_since,
            w.partition_key
       FROM perdure.workflows w
      WHERE (w.namespace, w.id) >= ($1::text, $4::text) AND w.namespace <= $1::text
        AND w.status = 10 AND w.waiting_for IS NOT NULL
      ORDER BY w.namespace, w.id LIMIT $2::integer)
    UNION ALL
    (SELECT w.id, w.fence, w.name, w.pool, w.queue, w.requires, w.version, w.suspended, w.waiting_for, w.waiting_since,
            w.partition_key
       FROM perdure.workflows w
      WHERE (w.namespace, w.id) < ($1::text, $4::text) AND w.namespace >= $1::text
        AND w.status = 10 AND w.waiting_for IS NOT NULL
      ORDER BY w.namespace, w.id LIMIT $2::integer)) u
 LIMIT $2::integer
