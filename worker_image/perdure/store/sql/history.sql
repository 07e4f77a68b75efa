-- Purpose: the first recorded steps of some runs, a bounded number of each, and bounded bytes: values may be large, and
-- the worker's memory and the time of a statement are not. At least one of each.
-- Run by: the claimer, for what it has just claimed, and the bodies of runs that have more: nobody else can write these
-- steps any more.
-- Locks: none. Expected index: workflow_steps_pkey. Zero rows: nothing was recorded.
-- `bytes`: of this row and those before it, without reading what is stored out of line. The first row at or above $4 is
-- the last.
SELECT s.workflow_id, s.step_index, s.name, s.status, s.input, s.output, s.error, s.attempts, s.attempt_errors,
       s.wake_at, extract(epoch FROM s.wake_at - clock_timestamp())::float8 AS wake_in, s.bytes
  FROM unnest($1::text[]) AS run(id)
 CROSS JOIN LATERAL
       (SELECT page.* FROM (
               SELECT t.*, size.own, sum(size.own) OVER (ORDER BY t.step_index ROWS UNBOUNDED PRECEDING)::bigint AS bytes
                 FROM perdure.workflow_steps t
                CROSS JOIN LATERAL (
                      SELECT coalesce(octet_length(t.input), 0) + coalesce(octet_length(t.output), 0)
                             + coalesce(octet_length(t.error), 0) + coalesce(octet_length(t.attempt_errors), 0) AS own) size
                WHERE t.workflow_id = run.id AND t.step_index > $2::integer
                ORDER BY t.step_index LIMIT $3::integer) page
         WHERE page.bytes - page.own < $4::bigint) s
 ORDER BY s.workflow_id, s.step_index
