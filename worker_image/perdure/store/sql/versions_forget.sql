-- Purpose: remove what is known of up to $2 versions that registered more than $1 seconds ago, have no worker and no run
-- that has not ended.
-- Run by: every worker's sweeper, every few minutes. Locks: the removed rows. Expected index: worker_versions_pkey, one
-- look-up for each version; workers_pool, workflows_versions, workflows_open. Zero rows: every version is needed.
WITH RECURSIVE known(namespace, pool, version, registered_at) AS (
    (SELECT v.namespace, v.pool, v.version, v.registered_at FROM perdure.worker_versions v
      ORDER BY v.namespace, v.pool, v.version LIMIT 1)
    UNION ALL
    SELECT next.namespace, next.pool, next.version, next.registered_at
      FROM known k
     CROSS JOIN LATERAL (
           SELECT v.namespace, v.pool, v.version, v.registered_at FROM perdure.worker_versions v
            WHERE (v.namespace, v.pool, v.version) > (k.namespace, k.pool, k.version)
            ORDER BY v.namespace, v.pool, v.version LIMIT 1) next
), unused AS MATERIALIZED (
    SELECT k.namespace, k.pool, k.version
      FROM known k
     WHERE k.registered_at < now() - make_interval(secs => $1::float8)
       AND NOT EXISTS (SELECT FROM perdure.workers l
                        WHERE l.namespace = k.namespace AND l.pool = k.pool AND l.version = k.version
                          AND l.state IN (10, 20))
       AND NOT EXISTS (SELECT FROM perdure.workflows w
                        WHERE w.namespace = k.namespace AND w.pool = k.pool AND w.version = k.version
                          AND w.status + 0 IN (10, 20, 40))
       AND NOT EXISTS (SELECT FROM perdure.workflows w
                        WHERE w.namespace = k.namespace AND w.status = 30 AND w.pool = k.pool
                          AND coalesce(w.version, '') = k.version)
     LIMIT $2::integer
)
DELETE FROM perdure.worker_versions v
 USING unused u
 WHERE v.namespace = u.namespace AND v.pool = u.pool AND v.version = u.version
RETURNING v.version
