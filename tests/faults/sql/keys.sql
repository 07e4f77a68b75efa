-- Purpose: idempotency keys whose promise was broken, as a kind of problem and a sentence. Run by: the checker.
-- once: the body begins at most once, and not at all only where whoever marked the key was cut off.
-- The others: it is done at least once, and again only for a caller that was cut off or lost the key; no body begins
-- for a key that is done already; all who remember got one result, which a body that was done has given.
-- A call that its step's end did not follow was cut off.
WITH caller AS (
    SELECT k.scope, k.key, k.how, k.run, k.step_index, count(*) AS calls, coalesce(bool_or(s.status >= 30), false) AS ended
      FROM faults.keyed k
      LEFT JOIN perdure.workflow_steps s ON s.workflow_id = k.run AND s.step_index = k.step_index
     WHERE k.phase = 'call'
     GROUP BY k.scope, k.key, k.how, k.run, k.step_index
), key AS (
    SELECT c.scope, c.key, c.how, min(c.run) AS run, sum(c.calls) - sum(c.ended::integer) AS cut_off,
           bool_or(c.ended) AS ended
      FROM caller c GROUP BY c.scope, c.key, c.how
), noted AS (
    SELECT k.scope, k.key,
           count(*) FILTER (WHERE k.phase = 'begun') AS begun,
           count(*) FILTER (WHERE k.phase = 'done') AS done,
           count(*) FILTER (WHERE k.phase = 'lost') AS lost,
           count(*) FILTER (WHERE k.phase = 'begun' AND k.key_state = 20 AND k.run_fence = k.fence) AS too_late,
           count(DISTINCT k.token) FILTER (WHERE k.phase = 'got') AS results,
           count(*) FILTER (WHERE k.phase = 'got' AND NOT EXISTS (
               SELECT FROM faults.keyed d
                WHERE d.scope = k.scope AND d.key = k.key AND d.phase = 'done' AND d.token = k.token)) AS of_nobody
      FROM faults.keyed k GROUP BY k.scope, k.key
), fact AS (
    SELECT key.*, noted.begun, noted.done, noted.lost, noted.too_late, noted.results, noted.of_nobody,
           coalesce(t.state = 20, false) AS marked
      FROM key JOIN noted ON noted.scope = key.scope AND noted.key = key.key
      LEFT JOIN perdure.idempotency_keys t ON t.scope = key.scope AND t.key = key.key
)
SELECT f.run, 'finished_steps_rerun' AS kind, format('key %s (%s): its body began %s times', f.key, f.how, f.begun)
       AS sentence
  FROM fact f WHERE f.how = 'once' AND f.begun > 1
UNION ALL
SELECT f.run, 'finished_steps_rerun', format('key %s (%s): done %s times, %s calls were cut off, %s lost it', f.key,
                                             f.how, f.done, f.cut_off, f.lost)
  FROM fact f WHERE f.how <> 'once' AND f.done > 1 + f.cut_off + f.lost
UNION ALL
SELECT f.run, 'finished_steps_rerun', format('key %s (%s): %s bodies began when it was done', f.key, f.how, f.too_late)
  FROM fact f WHERE f.how <> 'once' AND f.too_late > 0
UNION ALL
SELECT f.run, 'steps_lost', format('key %s (%s): a caller ended; begun %s, done %s, cut off %s, marked: %s', f.key,
                                   f.how, f.begun, f.done, f.cut_off, f.marked)
  FROM fact f
 WHERE f.ended AND (NOT f.marked OR CASE f.how WHEN 'once' THEN f.begun = 0 AND f.cut_off = 0 ELSE f.done = 0 END)
UNION ALL
SELECT f.run, 'steps_lost', format('key %s: %s results were remembered, %s of them are of no body that was done', f.key,
                                   f.results, f.of_nobody)
  FROM fact f WHERE f.how = 'remember' AND (f.results > 1 OR f.of_nobody > 0)
