-- Purpose: of a pool's workers, retire those of earlier versions, and take back the present version's.
-- Run by: the operator, while a pool has more than one version and the present one has a ready pod.
-- Locks: the workers' rows, sorted; a beat in flight waits a moment. Expected index: workers_pool.
-- Zero rows: nothing has changed.
WITH changed AS MATERIALIZED (
    SELECT k.id FROM perdure.workers k
     WHERE k.namespace = $1::text AND k.pool = $2::text AND k.state IN (10, 20)
       AND k.retired <> (k.version <> $3::text)
     ORDER BY k.id
       FOR NO KEY UPDATE
)
UPDATE perdure.workers k SET retired = k.version <> $3::text
  FROM changed WHERE k.id = changed.id
RETURNING k.id
