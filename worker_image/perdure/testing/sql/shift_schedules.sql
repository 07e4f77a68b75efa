-- Purpose: move all instants of `schedules` back by $1: to the statements, which go by the clock, that much time passes.
-- Run by: the testing kit, in one transaction with the other tables, on a database of a test's own.
-- Locks: all rows. Zero rows: there are none.
UPDATE perdure.schedules
   SET decided = decided - $1::interval,
       next_tick = next_tick - $1::interval,
       next_at = next_at - $1::interval,
       queued_tick = queued_tick - $1::interval,
       last_tick = last_tick - $1::interval,
       created_at = created_at - $1::interval
