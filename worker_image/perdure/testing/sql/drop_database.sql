-- Purpose: remove a database of a test, whoever is still connected to it. `{name}` as in `create_database`.
-- Run by: the testing kit, on the server's maintenance database. Locks: the database. No row.
DROP DATABASE IF EXISTS {name} WITH (FORCE)
