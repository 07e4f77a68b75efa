-- Purpose: hold a run that has failed and is to be run again, first of three statements in one transaction: what the
-- next two read must be younger than this lock. The second is sweep_retry_steps.
-- Run by: starts that run again what has failed. Locks: the run's row. Expected index: workflows_pkey. Zero rows: it has
-- not failed, this very start has run it again already, or it is about to be removed.
SELECT w.id FROM perdure.workflows w
 WHERE w.id = $1::text AND w.status IN (60, 80) AND NOT w.deleted AND w.start_token IS DISTINCT FROM $2::bigint
   FOR NO KEY UPDATE
