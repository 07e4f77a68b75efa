-- Purpose: how many runs this one has started. Run by: the load, before a cancel that is to meet children.
SELECT count(*) AS times FROM perdure.workflows w WHERE w.parent_id = $1::text
