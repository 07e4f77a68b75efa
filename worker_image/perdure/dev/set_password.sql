-- Purpose: give the role of a throwaway database the password of a mounted file, at every start.
-- Run by psql over the server's own socket; the file is read here so that the password is in no argument list.
\set password `cat "$PERDURE_PASSWORD_FILE"`
SET log_statement = 'none';
ALTER ROLE :"role" PASSWORD :'password';
