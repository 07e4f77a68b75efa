-- Purpose: runs that others wait for and that have ended, or are gone, for longer than the worker that ended them takes
-- to wake those. However they ended: nobody who ends a run has to know of this. A row with the place of $2 is the last
-- of the page, whether it has ended or not: the next page begins behind it.
-- Run by: every sweeper, the next $2 of the awaited runs behind $1. Locks: none.
-- Expected index: run_waits_pkey, one look-up for each awaited run, workflows_pkey. Zero rows: the last page, and all of
-- it still goes on.
WITH RECURSIVE awaited(run_id, place) AS (
    (SELECT v.run_id, 1 FROM perdure.run_waits v WHERE v.run_id > $1::text ORDER BY v.run_id LIMIT 1)
    UNION ALL
    SELECT next.run_id, a.place + 1
      FROM awaited a
     CROSS JOIN LATERAL (
           SELECT v.run_id FROM perdure.run_waits v WHERE v.run_id > a.run_id ORDER BY v.run_id LIMIT 1) next
     WHERE a.place < $2::integer
)
SELECT a.run_id, a.place, run.ended
  FROM awaited a
 CROSS JOIN LATERAL (
       SELECT coalesce((SELECT w.status >= 50 AND w.finished_at <= now() - make_interval(secs => $3::float8)
                          FROM perdure.workflows w WHERE w.id = a.run_id), true) AS ended) run
 WHERE run.ended OR a.place = $2::integer
 ORDER BY a.place
