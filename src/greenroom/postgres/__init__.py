"""A PostgreSQL database, shared by all stores of a process.

`database` has the connection that writes, with group commit, the pool that reads, and retries while the server
restarts. `connection` imports asyncpg and types it, `migrate` applies the numbered files of `migrations/`.
"""
