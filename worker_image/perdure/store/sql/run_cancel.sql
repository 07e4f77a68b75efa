-- Purpose: cancel runs. What nobody owns ends at once; the owner of a RUNNING row sees the flag at its next checkpoint or
-- beat; an ended run stays as it is. With $4 those that they have started follow, without it these go on.
-- Run by: clients, the command line, and workers for the calls of runs (resources cancel through run_upsert).
-- Locks: the runs' rows, sorted. Expected index: workflows_pkey, workflows_children. A run that does not come back does
-- not exist. A cancel only ever gets stronger: the mode, and whether children follow. One that compensates makes a run
-- that nobody owns claimable, if it has steps that are to be undone; from then on no cancel has any say.
WITH run AS MATERIALIZED (
    SELECT w.id, w.status, coalesce(w.undo > 0, false) AS undoing,
           coalesce(w.undo = 0 AND w.cancel_mode IS NULL AND $2::text = 'Compensate', false) AS undoes
      FROM perdure.workflows w WHERE w.id = ANY($1::text[]) ORDER BY w.id FOR NO KEY UPDATE
), done AS (
    UPDATE perdure.workflows w
       SET cancel_mode = CASE WHEN w.cancel_mode IS NULL OR $2::text = 'Immediate' THEN $2::text ELSE w.cancel_mode END,
           undo = CASE WHEN run.undoes THEN 1 ELSE w.undo END,
           cancel_reason = coalesce(w.cancel_reason, $3::text),
           cascades = CASE WHEN w.cancel_mode IS NULL THEN w.cascades AND $4::boolean
                           ELSE w.cascades OR ($4::boolean AND EXISTS (
                                SELECT FROM perdure.workflows c WHERE c.parent_id = w.id AND c.status < 50)) END,
           status = CASE WHEN w.status = 30 THEN 30 WHEN run.undoes THEN 10 ELSE 70 END,
           fence = w.fence + (w.status <> 30 AND NOT (run.undoes AND w.status = 10))::integer,
           finished_at = CASE WHEN w.status <> 30 AND NOT run.undoes THEN clock_timestamp() END,
           reopen = w.reopen AND NOT run.undoes,
           wake_at = NULL,
           waiting_for = NULL,
           edits = w.edits + 1,
           status_due_at = now()
      FROM run
     WHERE w.id = run.id
       AND run.status < 50 AND NOT run.undoing
       AND (run.status <> 30 OR w.cancel_mode IS NULL OR (w.cancel_mode <> 'Immediate' AND $2::text = 'Immediate')
            OR ($4::boolean AND NOT w.cascades AND EXISTS (
                SELECT FROM perdure.workflows c
                 WHERE c.parent_id = w.id AND c.status < 50 AND c.cancel_mode IS NULL)))
    RETURNING w.id, w.status
)
SELECT run.id, coalesce(done.status, run.status) AS status FROM run LEFT JOIN done ON done.id = run.id
