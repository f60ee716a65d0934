"""A SQLite file, shared by all stores of a process.

`database` has the thread that writes, with group commit, and the threads that read. `row_insert` writes many rows in
one call, `transaction` runs functions that PostgreSQL shares, `migrate` applies the numbered files of `migrations/`,
and `compact` gives free pages back to the file system.
"""
