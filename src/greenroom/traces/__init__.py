"""Stores of the spans of past runs, for debugging.

`store` is the contract, with the store in memory; `sql` keeps traces in the sessions' database, SQLite or PostgreSQL.
"""
