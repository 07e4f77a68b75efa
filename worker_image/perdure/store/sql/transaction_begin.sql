-- Purpose: mark the transaction of a step's body, so that at its end it is known to be the same one.
-- Run by: perdure.transaction, first in the transaction. Locks: none. Zero rows: never.
-- The mark is a setting of this transaction alone: whatever ends the transaction takes it away.
SELECT set_config('perdure.transaction', $1::text, true)
