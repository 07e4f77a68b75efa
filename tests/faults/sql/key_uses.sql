-- Purpose: how often steps asked for an idempotency key. Run by: the checker, for what the session has covered.
SELECT count(*) AS times FROM faults.keyed k WHERE k.phase = 'call'
