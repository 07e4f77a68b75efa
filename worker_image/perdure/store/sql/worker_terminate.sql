-- Purpose: end the sessions of a dead worker: its late statements, and the row locks of a half-open connection.
-- Run by: whoever marked it dead. Sessions carry the worker's id as application_name, cut at 63 bytes.
-- Locks: none. Expected index: none. Counts the sessions.
SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid)) AS ended
  FROM pg_stat_activity a
 WHERE a.application_name = left($1::text, 63) AND a.datname = current_database() AND a.usename = current_user
   AND a.pid <> pg_backend_pid()
