-- Purpose: what there is in streams from offsets on, and how the streams and their runs stand, for many readers at once.
-- Run by: clients, once a tick. Locks: none. Expected index: stream_values_pkey, streams_pkey, workflows_pkey.
-- Bounded for each reader: at most $4 values and, but for the first, $5 characters of them.
-- One row at least for each reader, in their order. `status` null: there is no such run. `length` null: nothing was
-- written.
SELECT r.n, v."offset", v.value, w.status, s.length, s.closed_by IS NOT NULL AS closed
  FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS r(run_id, key, "from", n)
  LEFT JOIN perdure.workflows w ON w.id = r.run_id
  LEFT JOIN perdure.streams s ON s.workflow_id = r.run_id AND s.key = r.key
  LEFT JOIN LATERAL (
       SELECT page."offset", page.value
         FROM (SELECT i."offset", i.value, sum(length(i.value)) OVER (ORDER BY i."offset") AS size
                 FROM (SELECT j."offset", j.value FROM perdure.stream_values j
                        WHERE j.workflow_id = r.run_id AND j.key = r.key AND j."offset" >= r."from"
                        ORDER BY j."offset" LIMIT $4::integer) i) page
        WHERE page.size <= $5::bigint OR page."offset" = r."from") v ON true
 ORDER BY r.n, v."offset"
