-- Purpose: move all instants of `workflow_steps` back by $1: to the statements, which go by the clock, that much time passes.
-- Run by: the testing kit, in one transaction with the other tables, on a database of a test's own.
-- Locks: all rows. Zero rows: there are none.
UPDATE perdure.workflow_steps
   SET started_at = started_at - $1::interval,
       finished_at = finished_at - $1::interval,
       wake_at = wake_at - $1::interval
