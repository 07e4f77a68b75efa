-- Purpose: move all instants of `stream_values` back by $1: to the statements, which go by the clock, that much time passes.
-- Run by: the testing kit, in one transaction with the other tables, on a database of a test's own.
-- Locks: all rows. Zero rows: there are none.
UPDATE perdure.stream_values
   SET written_at = written_at - $1::interval
