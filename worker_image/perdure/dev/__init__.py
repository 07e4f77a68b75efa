"""Running everything on one machine: an embedded Postgres, and the engine and worker as local processes."""
