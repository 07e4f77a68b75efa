-- Purpose: which of these runs' rows somebody else locks at this moment.
-- Run by: the worker's journal, after it waited in vain for a lock, and before it sends such a run again: so one row
-- that somebody holds for long keeps a connection waiting once.
-- Locks: those that are free, for an instant. Expected index: workflows_pkey. Zero rows: none is locked.
WITH free AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w WHERE w.id = ANY($1::text[]) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT w.id FROM perdure.workflows w WHERE w.id = ANY($1::text[]) AND w.id NOT IN (SELECT free.id FROM free)
