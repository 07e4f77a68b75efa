-- Purpose: the parents of these ended runs have been woken; after that.
-- Run by: whoever woke them. Locks: the children's rows, sorted. Expected index: workflows_pkey. Zero rows: told before.
WITH child AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w
     WHERE w.id = ANY($1::text[]) AND w.status >= 50 AND NOT w.parent_told
     ORDER BY w.id
       FOR NO KEY UPDATE
)
UPDATE perdure.workflows w SET parent_told = true FROM child WHERE w.id = child.id RETURNING w.id
