-- Purpose: ids of runs of a namespace that are named one by one ($2), or by the run that started them ($3), the run that
-- they were forked from ($4), or what their attributes have ($9): those behind (created_at, id) = ($6, $7) in the order of
-- a list, newest first if $5.
-- Run by: clients, for a page of a list; list_runs then reads and chooses. One of the four is given.
-- Locks: none. Expected index: workflows_pkey, workflows_children, workflows_forks, workflows_attributes. At most $8 rows,
-- out of all of them.
SELECT h.id, h.created_at
  FROM (SELECT w.id, w.created_at FROM perdure.workflows w WHERE w.namespace = $1::text AND w.id = ANY($2::text[])
        UNION ALL
        SELECT w.id, w.created_at FROM perdure.workflows w WHERE w.namespace = $1::text AND w.parent_id = $3::text
        UNION ALL
        SELECT w.id, w.created_at FROM perdure.workflows w WHERE w.namespace = $1::text AND w.forked_from = $4::text
        UNION ALL
        SELECT w.id, w.created_at FROM perdure.workflows w
         WHERE w.namespace = $1::text AND w.attributes IS NOT NULL AND w.attributes @> $9::text::jsonb) h
 WHERE CASE WHEN $5::boolean THEN (h.created_at, h.id) < ($6::timestamptz, $7::text)
            ELSE (h.created_at, h.id) > ($6::timestamptz, $7::text) END
 ORDER BY CASE WHEN $5::boolean THEN h.created_at END DESC, CASE WHEN $5::boolean THEN h.id END DESC, h.created_at, h.id
 LIMIT $8::integer
