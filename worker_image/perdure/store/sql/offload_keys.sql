-- Purpose: what a page of idempotency keys keeps elsewhere: of values that begin with $4 what follows, and where the page
-- ends; nulls there say that there is no more.
-- Run by: `perdure offload sweep`, all pages in one snapshot. Locks: none. Expected index: idempotency_keys_pkey.
-- Zero rows: never.
SELECT (array_agg(k.scope ORDER BY k.scope DESC, k.key DESC))[1] AS scope,
       (array_agg(k.key ORDER BY k.scope DESC, k.key DESC))[1] AS key,
       coalesce(array_agg(DISTINCT substr(k.head, length($4::text) + 1)) FILTER (WHERE starts_with(k.head, $4::text)),
                '{}') AS names
  FROM (SELECT scope, key, substr(value, 1, 200) AS head FROM perdure.idempotency_keys
         WHERE (scope, key) > ($1::text, $2::text) ORDER BY scope, key LIMIT $3::integer) k
