-- Purpose: how many runs have not ended. Run by: the harness, when the faults are over.
SELECT count(*) AS runs FROM perdure.workflows w WHERE w.status < 50
