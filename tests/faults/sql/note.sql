-- Purpose: what a step comes to under an idempotency key; with what is known of key and run at this moment.
-- Run by: the body itself, through its worker's writer. Sent again unchanged it writes nothing twice.
INSERT INTO faults.keyed (id, run, step_index, scope, key, how, phase, token, fence, run_fence, key_state)
SELECT $1::uuid, $2::text, $3::integer, $4::text, $5::text, $6::text, $7::text, $8::text, $9::bigint, w.fence, k.state
  FROM (VALUES (1)) AS one
  LEFT JOIN perdure.workflows w ON w.id = $2::text
  LEFT JOIN perdure.idempotency_keys k ON k.scope = $4::text AND k.key = $5::text
ON CONFLICT (id) DO NOTHING
