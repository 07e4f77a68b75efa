-- Purpose: mark ended runs without a resource that are older than $3 seconds for removal. Looks at the next $6 of one
-- pool behind (finished_at, id) = ($4, $5), and lets those be that somebody still has to do with: the parent has not
-- ended and may ask for the outcome, a child has not ended, or a run that has not ended waits for its end or an event.
-- Run by: every worker, between its runs, page after page.
-- Locks: the marked rows, those of others skipped. Expected index: workflows_ended, workflows_pkey, workflows_children.
-- One row: how many were looked at, how many marked, and where the page ended. Zero rows: nothing old is left.
WITH old AS MATERIALIZED (
    SELECT w.id, w.finished_at, w.parent_id FROM perdure.workflows w
     WHERE w.name IS NULL AND w.status >= 50 AND NOT w.deleted
       AND w.namespace = $1::text AND w.pool = $2::text
       AND w.finished_at < now() - make_interval(secs => $3::float8)
       AND (w.finished_at, w.id) > ($4::timestamptz, $5::text)
     ORDER BY w.finished_at, w.id LIMIT $6::integer
), free AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w JOIN old ON old.id = w.id
     WHERE w.status >= 50 AND NOT w.deleted
       AND NOT EXISTS (SELECT FROM perdure.workflows p WHERE p.id = old.parent_id AND p.status < 50)
       AND NOT EXISTS (SELECT FROM perdure.workflows c WHERE c.parent_id = old.id AND c.status < 50)
       AND NOT EXISTS (SELECT FROM perdure.event_waits e JOIN perdure.workflows r ON r.id = e.workflow_id
                        WHERE e.run_id = old.id AND r.status < 50)
       AND NOT EXISTS (SELECT FROM perdure.run_waits e JOIN perdure.workflows r ON r.id = e.workflow_id
                        WHERE e.run_id = old.id AND r.status < 50)
     ORDER BY w.id
       FOR NO KEY UPDATE OF w SKIP LOCKED
), marked AS (
    UPDATE perdure.workflows w SET deleted = true FROM free WHERE w.id = free.id RETURNING w.id
)
SELECT (SELECT count(*) FROM old) AS seen, (SELECT count(*) FROM marked) AS marked, last.finished_at, last.id
  FROM (SELECT old.finished_at, old.id FROM old ORDER BY old.finished_at DESC, old.id DESC LIMIT 1) last
