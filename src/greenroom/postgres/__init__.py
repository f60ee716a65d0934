"""One PostgreSQL database: a connection that writes in groups, a pool of readers, and numbered migrations."""
