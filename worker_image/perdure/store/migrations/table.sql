-- Before the first migration: what was applied, and the exact text that was.
CREATE TABLE perdure.migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
