-- Before the first migration: the schema, unless an administrator has made it, and what was applied with the exact
-- text that was. Asked first, since IF NOT EXISTS wants the right to create even when there is nothing to create.
DO $$
BEGIN
    IF to_regnamespace('perdure') IS NULL THEN
        CREATE SCHEMA perdure;
    END IF;
    IF to_regclass('perdure.migrations') IS NULL THEN
        CREATE TABLE perdure.migrations (
            version    integer PRIMARY KEY,
            name       text NOT NULL,
            checksum   text NOT NULL,
            applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
    END IF;
END
$$;
