-- Before the first migration, unless an administrator has made it.
CREATE SCHEMA perdure;
