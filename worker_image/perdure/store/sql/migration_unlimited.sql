-- Purpose: let this transaction take, wait and idle as long as it must: a migration reads whole tables.
-- Run by: migrate, first in each of its transactions, as the role may carry the limits of short statements.
-- Locks: none. Expected index: none.
SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '0', true)
