-- Purpose: which of these runs have ended. Run by: the load, to know how many are under way.
SELECT w.id FROM perdure.workflows w WHERE w.id = ANY($1::text[]) AND w.status >= 50
