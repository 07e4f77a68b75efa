-- Purpose: the next ids of runs of a namespace, newest first, behind (created_at, id) = ($5, $6) and not older than $7.
-- Run by: clients, for a page of a list; list_runs then reads and chooses. Each group of statuses has an index and is
-- read only if it is asked for ($2 not ended, $3 succeeded, $4 ended otherwise), never more than $8 entries; of what runs
-- now, of which there are never very many, all.
-- Locks: none. Expected index: workflows_running or workflows_open, workflows_listed_open, workflows_listed_succeeded,
-- workflows_listed_others.
SELECT h.id, h.created_at
  FROM ((SELECT w.id, w.created_at FROM perdure.workflows w
          WHERE $2::boolean AND w.namespace = $1::text AND w.status = 30
            AND (w.created_at, w.id) < ($5::timestamptz, $6::text) AND w.created_at >= $7::timestamptz
          ORDER BY w.created_at DESC, w.id DESC LIMIT $8::integer)
        UNION ALL
        (SELECT w.id, w.created_at FROM perdure.workflows w
          WHERE $2::boolean AND w.namespace = $1::text AND w.status + 0 IN (10, 20, 40)
            AND (w.created_at, w.id) < ($5::timestamptz, $6::text) AND w.created_at >= $7::timestamptz
          ORDER BY w.created_at DESC, w.id DESC LIMIT $8::integer)
        UNION ALL
        (SELECT w.id, w.created_at FROM perdure.workflows w
          WHERE $3::boolean AND w.namespace = $1::text AND w.status + 0 = 50
            AND (w.created_at, w.id) < ($5::timestamptz, $6::text) AND w.created_at >= $7::timestamptz
          ORDER BY w.created_at DESC, w.id DESC LIMIT $8::integer)
        UNION ALL
        (SELECT w.id, w.created_at FROM perdure.workflows w
          WHERE $4::boolean AND w.namespace = $1::text AND w.status + 0 > 50
            AND (w.created_at, w.id) < ($5::timestamptz, $6::text) AND w.created_at >= $7::timestamptz
          ORDER BY w.created_at DESC, w.id DESC LIMIT $8::integer)) h
 ORDER BY h.created_at DESC, h.id DESC LIMIT $8::integer
