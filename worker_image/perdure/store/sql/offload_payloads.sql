-- Purpose: what a page of runs keeps elsewhere: of inputs and results that begin with $3 what follows, and where the page
-- ends; a null there says that there is no more.
-- Run by: `perdure offload sweep`, all pages in one snapshot. Locks: none. Expected index: workflow_payloads_pkey.
-- Zero rows: never.
SELECT max(p.workflow_id) AS last,
       coalesce(array_agg(DISTINCT substr(v.head, length($3::text) + 1)) FILTER (WHERE starts_with(v.head, $3::text)),
                '{}') AS names
  FROM (SELECT workflow_id, input, output FROM perdure.workflow_payloads
         WHERE workflow_id > $1::text ORDER BY workflow_id LIMIT $2::integer) p,
       unnest(ARRAY[substr(p.input, 1, 200), substr(p.output, 1, 200)]) AS v(head)
