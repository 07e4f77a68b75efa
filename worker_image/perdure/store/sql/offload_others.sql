-- Purpose: what everything beside runs and steps keeps elsewhere: of values that begin with $1 what follows.
-- Run by: `perdure offload sweep`, in the snapshot of the other pages. Locks: none. Expected index: none, these tables
-- are read whole. Zero rows: nothing is kept there.
SELECT DISTINCT substr(v.head, length($1::text) + 1) AS name
  FROM (SELECT substr(value, 1, 200) FROM perdure.messages
        UNION ALL SELECT substr(value, 1, 200) FROM perdure.events
        UNION ALL SELECT substr(value, 1, 200) FROM perdure.events_history
        UNION ALL SELECT substr(value, 1, 200) FROM perdure.stream_values
        UNION ALL SELECT substr(input, 1, 200) FROM perdure.schedules
        UNION ALL SELECT substr(input, 1, 200) FROM perdure.undos) AS v(head)
 WHERE starts_with(v.head, $1::text)
