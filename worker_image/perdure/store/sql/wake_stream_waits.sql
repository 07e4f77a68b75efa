-- Purpose: some of the runs that wait for values of streams that are there now ($3 are the streams' lengths), or for any
-- value of those that are closed ($4). $1 are the streams' runs, $2 their keys.
-- Run by: whoever tells of what was written to them, until there are none: those that have been woken are taken out of
-- the waits. Locks: none. Expected index: stream_waits_pkey. Zero rows: nobody waits for what is there.
SELECT r.n, v.workflow_id
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[]) WITH ORDINALITY AS r(run_id, key, length, closed, n)
 CROSS JOIN LATERAL (
       SELECT DISTINCT i.workflow_id FROM perdure.stream_waits i
        WHERE i.run_id = r.run_id AND i.key = r.key AND (i."offset" < r.length OR r.closed)
        ORDER BY i.workflow_id LIMIT $5::integer) v
 LIMIT $5::integer
