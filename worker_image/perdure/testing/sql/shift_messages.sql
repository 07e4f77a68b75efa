-- Purpose: move all instants of `messages` back by $1: to the statements, which go by the clock, that much time passes.
-- Run by: the testing kit, in one transaction with the other tables, on a database of a test's own.
-- Locks: all rows. Zero rows: there are none.
UPDATE perdure.messages
   SET sent_at = sent_at - $1::interval
