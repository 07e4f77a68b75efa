-- Purpose: move all instants of `idempotency_keys` back by $1: to the statements, which go by the clock, that much time passes.
-- Run by: the testing kit, in one transaction with the other tables, on a database of a test's own.
-- Locks: all rows. Zero rows: there are none.
UPDATE perdure.idempotency_keys
   SET expires_at = expires_at - $1::interval,
       created_at = created_at - $1::interval
