-- Purpose: after a COMMIT without an answer: wait until the session that holds the run's row has ended its transaction.
-- Run by: perdure.transaction, first of two statements in one transaction; the second (journal_steps_at) then sees
-- what became of the step.
-- Locks: the run's row, whoever owns it by now. Expected index: workflows_pkey. Zero rows: the run is gone.
SELECT w.fence FROM perdure.workflows w WHERE w.id = $1::text FOR NO KEY UPDATE
