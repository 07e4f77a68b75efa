-- Purpose: the workers of one pool that are live or draining, and what they know.
-- Run by: the operator, to say why runs wait. Locks: none. Expected index: workers_pool. Zero rows: there are none.
SELECT k.id, k.pod, k.version, k.slots, k.queues, k.manifest, k.state, k.retired
  FROM perdure.workers k
 WHERE k.namespace = $1::text AND k.pool = $2::text AND k.state IN (10, 20)
 ORDER BY k.id
