-- Purpose: whether this is still the transaction that was marked; and limits for what follows, which holds the run's
-- row: the user's own limits were for the user's statements.
-- Run by: perdure.transaction, between the body and the step's row. Locks: none. Zero rows: never.
-- Fails with 25P02 when the body has passed over an error of its SQL.
SELECT coalesce(current_setting('perdure.transaction', true), '') = $1::text AS same,
       set_config('lock_timeout', $2::text, true) AS lock_timeout,
       set_config('idle_in_transaction_session_timeout', $3::text, true) AS idle_timeout
