-- Purpose: how runs stand, and ask for news of the end of some of them.
-- Run by: clients: once a tick for all the runs that they wait for, and for those they hear the end of.
-- Locks: the rows of $2 that have not ended, for a moment; those that others hold are skipped.
-- Expected index: the primary keys. A run that does not come back does not exist, or is about to be removed.
-- `armed`: the end, which had not come, will be told. Neither armed nor ended: the row was locked, or it has just
-- ended and this snapshot is older; ask again soon. Losing an arming in a crash costs one poll, so it waits for no disk.
-- Outcomes of more than $3 bytes are left out and `complete` is false.
WITH open AS MATERIALIZED (
    SELECT w.id
      FROM set_config('synchronous_commit', 'off', true), perdure.workflows w
     WHERE w.id = ANY($2::text[]) AND w.status < 50
     ORDER BY w.id
       FOR NO KEY UPDATE OF w SKIP LOCKED
), armed AS (
    UPDATE perdure.workflows w SET awaited = true FROM open WHERE w.id = open.id RETURNING w.id
)
SELECT w.id, w.workflow, w.status, w.cancel_reason, w.recoveries,
       w.id IN (SELECT armed.id FROM armed) AS armed,
       CASE WHEN outcome.bytes <= $3::integer THEN p.output END AS output,
       CASE WHEN outcome.bytes <= $3::integer THEN p.error END AS error,
       outcome.bytes <= $3::integer AS complete
  FROM perdure.workflows w
  LEFT JOIN perdure.workflow_payloads p ON p.workflow_id = w.id AND w.status >= 50
 CROSS JOIN LATERAL (
       SELECT coalesce(octet_length(p.output), 0) + coalesce(octet_length(p.error), 0) AS bytes) outcome
 WHERE w.id = ANY($1::text[]) AND NOT w.deleted
