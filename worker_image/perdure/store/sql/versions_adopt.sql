-- Purpose: have up to $4 runs that an earlier version of the pool's workers began, and that nobody runs now, go on with
-- version $3: those of workflows whose policy there is `patched`, or `auto` with the same hash of the source.
-- Run by: every worker's sweeper. Only a version with a live worker that is not retired takes any, and only from one
-- that registered before it, or that has no such worker: so no run goes back and forth between two versions.
-- Locks: the runs' rows, those of others skipped. The fence stays: no owner changes. `edits` rises, as the version is
-- shown. Expected index: workflows_versions, one look-up for each version that has runs, then the entries that are
-- taken; worker_versions_pkey. Zero rows: nothing to take, or others hold it just now.
WITH RECURSIVE bound(version) AS (
    (SELECT w.version FROM perdure.workflows w
      WHERE w.namespace = $1::text AND w.pool = $2::text
        AND w.status + 0 IN (10, 20, 40) AND w.version IS NOT NULL
      ORDER BY w.version LIMIT 1)
    UNION ALL
    SELECT next.version
      FROM bound b
     CROSS JOIN LATERAL (
           SELECT w.version FROM perdure.workflows w
            WHERE w.namespace = $1::text AND w.pool = $2::text AND w.version > b.version
              AND w.status + 0 IN (10, 20, 40) AND w.version IS NOT NULL
            ORDER BY w.version LIMIT 1) next
), live AS MATERIALIZED (
    SELECT DISTINCT k.version FROM perdure.workers k
     WHERE k.namespace = $1::text AND k.pool = $2::text AND k.state IN (10, 20) AND NOT k.retired
), mine AS MATERIALIZED (
    SELECT v.version, v.workflow, v.source_hash, v.policy, v.registered_at FROM perdure.worker_versions v
     WHERE v.namespace = $1::text AND v.pool = $2::text AND v.version = $3::text AND v.policy <> 'pinned'
       AND $3::text IN (SELECT live.version FROM live)
), pair AS MATERIALIZED (
    SELECT b.version, mine.workflow
      FROM bound b
     CROSS JOIN mine
      LEFT JOIN LATERAL (
           SELECT v.version, v.source_hash, v.registered_at FROM perdure.worker_versions v
            WHERE v.namespace = $1::text AND v.pool = $2::text AND v.version = b.version
              AND v.workflow = mine.workflow LIMIT 1) theirs ON true
     WHERE b.version <> $3::text
       AND (mine.policy = 'patched' OR mine.source_hash = theirs.source_hash)
       AND (b.version NOT IN (SELECT live.version FROM live)
            OR theirs.version IS NULL
            OR (theirs.registered_at, theirs.version) < (mine.registered_at, mine.version))
), run AS MATERIALIZED (
    SELECT r.id
      FROM pair
     CROSS JOIN LATERAL (
           SELECT w.id FROM perdure.workflows w
            WHERE w.namespace = $1::text AND w.pool = $2::text AND w.version = pair.version
              AND w.workflow = pair.workflow AND w.status + 0 IN (10, 20, 40)
            LIMIT $4::integer
              FOR NO KEY UPDATE SKIP LOCKED) r
     LIMIT $4::integer
)
UPDATE perdure.workflows w
   SET version = $3::text,
       edits = w.edits + 1,
       waiting_for = CASE WHEN w.status = 10 THEN NULL ELSE w.waiting_for END,
       status_due_at = clock_timestamp()
 WHERE w.id = ANY(ARRAY(SELECT run.id FROM run))
RETURNING w.status = 10 AS ready
