-- Purpose: what a session of this role lacks of the settings $1 = $2, as statements that give them to the role in this
-- database. Run by: `perdure migrate --role-settings`, and workers behind a pooler at their start.
-- Compared with what RESET would set, so that a setting of the session itself does not hide what the role lacks.
-- Locks: none. Expected index: none (views of shared memory). Zero rows: all of them are set.
SELECT s.name,
       format('ALTER ROLE %I IN DATABASE %I SET %s = %L;', current_user, current_database(), s.name, wanted.value) AS statement
  FROM unnest($1::text[], $2::text[]) AS wanted(name, value)
  JOIN pg_settings s ON s.name = wanted.name
 WHERE s.reset_val IS DISTINCT FROM wanted.value
 ORDER BY s.name
