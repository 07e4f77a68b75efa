-- Purpose: note which revision the API server has taken, and that nothing is due unless the run moved on meanwhile.
-- Run by: the operator and the reporter, in bulk, after the answer.
-- Locks: the runs' rows, sorted. Expected index: the primary keys.
-- Steps are read in a snapshot that may be older than the lock; that matters for RUNNING rows only, whose owner
-- reports for itself and whose end lifts the fence and is due anew.
-- Zero rows: nothing to note.
WITH run AS MATERIALIZED (
    SELECT w.id, w.fence, w.edits FROM perdure.workflows w
     WHERE w.id = ANY($1::text[])
     ORDER BY w.id
       FOR NO KEY UPDATE
), seen AS MATERIALIZED (
    SELECT run.id, r.revision,
           (run.fence << 20) + least(run.edits + coalesce(
               (SELECT max(s.seq) FROM perdure.workflow_steps s
                 WHERE s.workflow_id = run.id AND s.fence = run.fence), 0), (1 << 20) - 1) AS current
      FROM run JOIN unnest($1::text[], $2::bigint[]) AS r(id, revision) ON r.id = run.id
)
UPDATE perdure.workflows w
   SET reported_revision = greatest(w.reported_revision, seen.revision),
       status_due_at = CASE WHEN seen.revision = seen.current THEN NULL ELSE w.status_due_at END
  FROM seen
 WHERE w.id = seen.id
   AND (w.reported_revision < seen.revision OR seen.revision = seen.current AND w.status_due_at IS NOT NULL)
RETURNING w.id
