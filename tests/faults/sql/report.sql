-- Purpose: all runs of the faults with their outcome. Run by: the checker, at the end.
SELECT w.id, w.status, w.fence, w.worker_id, w.run_attempts, w.recoveries, w.cancel_mode, w.cancel_reason, w.suspended, w.undo,
       w.wake_at, w.waiting_for, w.deadline_at, w.finished_at, w.parent_id, w.deleted, p.output, p.error
  FROM perdure.workflows w LEFT JOIN perdure.workflow_payloads p ON p.workflow_id = w.id
