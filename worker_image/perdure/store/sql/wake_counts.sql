-- Purpose: have these runs been woken since they last looked?
-- Run by: the worker, once a tick for all that wait in its memory. Locks: none. Expected index: workflows_pkey.
-- A run that does not come back does not exist.
SELECT w.id, w.wake_seq FROM perdure.workflows w WHERE w.id = ANY($1::text[])
