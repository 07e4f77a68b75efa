-- Purpose: everything that is known of one run, in order, one line each. Run by: whoever has to explain a failure.
SELECT story.at, story.line FROM (
    SELECT e.at, format('body of step %s (%s) begins, attempt %s, fence %s, worker %s; run: status %s fence %s of %s; step: status %s fence %s',
                        e.step_index, e.key, e.attempt, e.fence, e.worker, e.run_status, e.run_fence, e.run_worker,
                        e.step_status, e.step_fence) AS line
      FROM faults.effects e WHERE e.run = $1::text
    UNION ALL
    SELECT s.at, format('step %s: %s (%s, %s) -> %s (%s, %s) by %s; run: status %s fence %s of %s, ended %s by %s, here %s',
                        s.step_index, s.old_status, s.old_fence, s.old_seq, s.status, s.fence, s.seq, s.app,
                        s.run_status, s.run_fence, s.run_worker, s.ended_fence, s.ended_by, s.ended_here)
      FROM faults.step_writes s WHERE s.run = $1::text
    UNION ALL
    SELECT r.at, format('run: %s fence %s of %s -> %s fence %s of %s by %s (worker state %s)',
                        r.old_status, r.old_fence, r.old_worker, r.status, r.fence, r.worker, r.app, r.worker_state)
      FROM faults.run_writes r WHERE r.run = $1::text) AS story
 ORDER BY story.at
