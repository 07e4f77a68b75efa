-- Purpose: move all instants of `events_history` back by $1: to the statements, which go by the clock, that much time passes.
-- Run by: the testing kit, in one transaction with the other tables, on a database of a test's own.
-- Locks: all rows. Zero rows: there are none.
UPDATE perdure.events_history
   SET set_at = set_at - $1::interval
