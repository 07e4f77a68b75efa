-- Purpose: cancelled runs whose children have not been cancelled yet. No child can be added to them any more: a start
-- is refused once the cancel is there, so one look after it sees them all.
-- Run by: every sweeper, bounded. Locks: none. Expected index: workflows_cascade, workflows_undo_cascade.
-- Zero rows: no cancel is on its way.
(SELECT w.id FROM perdure.workflows w WHERE w.cascades AND w.cancel_mode IS NOT NULL ORDER BY w.id LIMIT $1::integer)
UNION
(SELECT w.id FROM perdure.workflows w WHERE w.cascades AND w.undo = 3 ORDER BY w.id LIMIT $1::integer)
 ORDER BY id LIMIT $1::integer
