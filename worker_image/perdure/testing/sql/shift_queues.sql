-- Purpose: move all instants of `queues` back by $1: to the statements, which go by the clock, that much time passes.
-- Run by: the testing kit, in one transaction with the other tables, on a database of a test's own.
-- Locks: all rows. Zero rows: there are none.
UPDATE perdure.queues
   SET tokens_at = tokens_at - $1::interval,
       created_at = created_at - $1::interval,
       changed_at = changed_at - $1::interval
