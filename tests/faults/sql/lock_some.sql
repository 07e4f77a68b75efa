-- Purpose: hold the rows of some running runs. Run by: the fault of the same name, in a transaction.
SELECT w.id FROM perdure.workflows w WHERE w.status = 30 ORDER BY w.id LIMIT $1::integer FOR UPDATE SKIP LOCKED
