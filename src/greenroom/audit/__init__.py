"""The audit trail: an append-only, hash-chained record of who did what.

`store.py` is the contract, `sql.py` its implementation in SQLite and PostgreSQL, `in_memory.py` the one without a
database; `signing.py` has the keys, and `verify.py` checks a trail without a server.
"""
