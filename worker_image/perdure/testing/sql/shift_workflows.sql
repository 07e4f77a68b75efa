-- Purpose: move all instants of runs back by $1: to the statements, which go by the clock, that much time passes.
-- Run by: the testing kit, in one transaction with the other tables, on a database of a test's own.
-- Locks: all rows. Zero rows: there are none. `status_due_at` stays: it says that something is to be written, not when.
UPDATE perdure.workflows
   SET run_at = run_at - $1::interval,
       wake_at = wake_at - $1::interval,
       deadline_at = deadline_at - $1::interval,
       waiting_since = waiting_since - $1::interval,
       created_at = created_at - $1::interval,
       started_at = started_at - $1::interval,
       finished_at = finished_at - $1::interval
