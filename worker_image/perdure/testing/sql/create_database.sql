-- Purpose: a database for a test, or the template of all of them. `{name}` and `{template}` are written by the testing
-- kit, of letters it has chosen itself: Postgres takes no parameters here.
-- Run by: the testing kit, on the server's maintenance database. Locks: the template. No row.
CREATE DATABASE {name} TEMPLATE {template}
