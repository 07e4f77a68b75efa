-- Purpose: waits of runs ($3) for values of streams that are there ($4 are the streams' lengths, $5 whether they are
-- closed) are over: the runs have been woken and look again. A wait that was written since then is looked after by its
-- writer, who looks at the stream after it.
-- Run by: whoever woke them. Locks: the waits, in the order of the lists, which are sorted. Expected index:
-- stream_waits_pkey or stream_waits_of. Zero rows: done.
WITH wait AS MATERIALIZED (
    SELECT v.ctid
      FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::boolean[])
           AS r(run_id, key, workflow_id, length, closed)
     CROSS JOIN LATERAL (
           SELECT i.ctid FROM perdure.stream_waits i
            WHERE i.run_id = r.run_id AND i.key = r.key AND i.workflow_id = r.workflow_id
              AND (i."offset" < r.length OR r.closed)
            ORDER BY i.step_index
              FOR UPDATE) v
)
DELETE FROM perdure.stream_waits v
 WHERE v.ctid = ANY(ARRAY(SELECT wait.ctid FROM wait))
RETURNING v.workflow_id
