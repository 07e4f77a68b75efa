-- Purpose: what the steps of a page of runs keep elsewhere: of inputs and outputs that begin with $3 what follows. The
-- page is that of `offload_payloads`: runs behind $1, up to $2.
-- Run by: `perdure offload sweep`, all pages in one snapshot. Locks: none. Expected index: workflow_steps_pkey.
-- Zero rows: they keep nothing there.
SELECT DISTINCT substr(v.head, length($3::text) + 1) AS name
  FROM perdure.workflow_steps s, unnest(ARRAY[substr(s.input, 1, 200), substr(s.output, 1, 200)]) AS v(head)
 WHERE s.workflow_id > $1::text AND s.workflow_id <= $2::text AND starts_with(v.head, $3::text)
