-- Purpose: runs behind resources whose status must be written by the operator, because no worker holds them.
-- Run by: the operator, bounded. Locks: none. Expected index: workflows_status_due. Zero rows: nothing is due.
SELECT w.id FROM perdure.workflows w
 WHERE w.status_due_at IS NOT NULL AND w.status <> 30 AND w.name IS NOT NULL AND NOT w.deleted
   AND w.status_due_at <= now()
 ORDER BY w.status_due_at LIMIT $1::integer
