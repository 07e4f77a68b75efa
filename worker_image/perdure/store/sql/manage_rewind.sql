-- Purpose: undo the steps of an ended run from the index $2 on, and make it claimable: it goes on from there. What those
-- steps received is in the inbox again, events have the value that they had before, children are cancelled.
-- Run by: rewind, under the lock of manage_lock, which has seen that the run has ended.
-- Locks: the run's held since then; the children's, sorted.
-- Expected index: the primary keys, messages_key, workflows_children. One row.
-- `rewinds` goes into the ids and keys that the steps give away when they are done again, so that no child, message or
-- idempotency key of before is taken for the new one.
-- Branches that lost their select are nobody's history: where the select itself is undone, they race again.
WITH steps AS (
    DELETE FROM perdure.workflow_steps s
     WHERE s.workflow_id = $1::text AND (s.step_index >= $2::integer OR s.status = 45)
), promised AS (
    DELETE FROM perdure.undos u WHERE u.workflow_id = $1::text AND u.step_index >= $2::integer
), received AS (
    UPDATE perdure.messages m SET consumed_by = NULL WHERE m.workflow_id = $1::text AND m.consumed_by >= $2::integer
), undone AS MATERIALIZED (
    SELECT DISTINCT h.name FROM perdure.events_history h WHERE h.workflow_id = $1::text AND h.step_index >= $2::integer
), before AS MATERIALIZED (
    SELECT DISTINCT ON (h.name) h.name, h.value, h.set_at
      FROM perdure.events_history h
      JOIN undone ON undone.name = h.name
     WHERE h.workflow_id = $1::text AND h.step_index < $2::integer
     ORDER BY h.name, h.set_at DESC, h.step_index DESC
), forgotten AS (
    DELETE FROM perdure.events_history h WHERE h.workflow_id = $1::text AND h.step_index >= $2::integer
), restored AS (
    UPDATE perdure.events e
       SET value = before.value, set_at = before.set_at
      FROM before
     WHERE e.workflow_id = $1::text AND e.name = before.name
), unset AS (
    DELETE FROM perdure.events e
     USING undone
     WHERE e.workflow_id = $1::text AND e.name = undone.name
       AND NOT EXISTS (SELECT FROM before WHERE before.name = undone.name)
), child AS MATERIALIZED (
    SELECT c.id
      FROM perdure.workflows c
     WHERE c.parent_id = $1::text AND c.parent_step >= $2::integer AND c.status < 50 AND coalesce(c.undo, 0) = 0
     ORDER BY c.id
       FOR NO KEY UPDATE
), cancelled AS (
    UPDATE perdure.workflows w
       SET cancel_mode = 'Immediate',
           cancel_reason = coalesce(w.cancel_reason, 'run ' || $1::text || ', which started it, was rewound'),
           status = CASE WHEN w.status = 30 THEN 30 ELSE 70 END,
           fence = w.fence + (w.status <> 30)::integer,
           finished_at = CASE WHEN w.status <> 30 THEN clock_timestamp() END,
           wake_at = NULL,
           waiting_for = NULL,
           edits = w.edits + 1,
           status_due_at = clock_timestamp()
      FROM child
     WHERE w.id = child.id
), run AS (
    UPDATE perdure.workflows w
       SET status = 10,
           fence = w.fence + 1,
           wake_seq = w.wake_seq + 1,
           edits = w.edits + 1,
           rewinds = w.rewinds + 1,
           run_attempts = 0,
           recoveries = 0,
           recovered_at_step = -1,
           deadline_at = NULL,
           deadline_inherited = false,
           deduplication_id = NULL,
           cancel_mode = NULL,
           cancel_reason = NULL,
           cancel_cause = NULL,
           undo = CASE WHEN w.undo_at < $2::integer THEN w.undo WHEN w.undo IS NOT NULL THEN 0 END,
           undo_at = CASE WHEN w.undo_at < $2::integer THEN w.undo_at END,
           cascades = EXISTS (SELECT FROM perdure.workflows c WHERE c.parent_id = w.id AND c.status < 50),
           parent_told = false,
           reopen = false,
           run_at = clock_timestamp(),
           wake_at = NULL,
           waiting_for = NULL,
           waiting_since = clock_timestamp(),
           finished_at = NULL,
           status_due_at = clock_timestamp()
     WHERE w.id = $1::text
    RETURNING w.id
), payload AS (
    UPDATE perdure.workflow_payloads p SET output = NULL, error = NULL FROM run WHERE p.workflow_id = run.id
)
SELECT run.id FROM run
