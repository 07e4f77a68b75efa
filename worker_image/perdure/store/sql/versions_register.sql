-- Purpose: say which workflows a version of a pool's workers has, each with the hash of its source and its policy.
-- Run by: a worker before it registers; $7: for the first time in its process. Then the version counts as the newest,
-- unless another worker of it is there: the version of a pod that starts anew beside others does not become newer.
-- Locks: the rows of the version, in the order of $4, which is sorted. Expected index: worker_versions_pkey,
-- workers_pool. Zero rows: all of it is known.
WITH lives AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM perdure.workers k
                    WHERE k.namespace = $1::text AND k.pool = $2::text AND k.version = $3::text
                      AND k.state IN (10, 20)) AS yes
)
INSERT INTO perdure.worker_versions AS v (namespace, pool, version, workflow, source_hash, policy, registered_at)
SELECT $1::text, $2::text, $3::text, g.workflow, g.source_hash, g.policy, now()
  FROM unnest($4::text[], $5::text[], $6::text[]) AS g(workflow, source_hash, policy)
ON CONFLICT (namespace, pool, version, workflow) DO UPDATE
   SET source_hash = excluded.source_hash,
       policy = excluded.policy,
       registered_at = CASE WHEN $7::boolean AND NOT (SELECT yes FROM lives) THEN now() ELSE v.registered_at END
 WHERE (v.source_hash, v.policy) IS DISTINCT FROM (excluded.source_hash, excluded.policy)
    OR ($7::boolean AND NOT (SELECT yes FROM lives))
RETURNING v.workflow
