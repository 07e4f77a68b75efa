-- Purpose: make a worker known; whatever was registered by the same pod before is thereby proved dead.
-- Run by: a worker at its start, and after its lease was lost (always under a new id).
-- Locks: the rows of the pod's earlier workers FOR UPDATE (their claims in flight end first), then the new row.
-- Expected index: workers_pod. Returns the ids marked dead; zero rows: there were none.
WITH earlier AS MATERIALIZED (
    SELECT k.id FROM perdure.workers k
     WHERE k.pod_uid = nullif($5::text, '') AND k.id <> $1::text AND k.state IN (10, 20)
     ORDER BY k.id
       FOR UPDATE
), dead AS (
    UPDATE perdure.workers k SET state = 40, ended_at = clock_timestamp()
      FROM earlier WHERE k.id = earlier.id
    RETURNING k.id
), new AS (
    INSERT INTO perdure.workers (id, namespace, pool, pod, pod_uid, version, queues, manifest, slots, state, lease_until)
    VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text[], $8::text[], $9::integer, 10,
            clock_timestamp() + make_interval(secs => $10::float8))
    ON CONFLICT (id) DO NOTHING
)
SELECT dead.id FROM dead
