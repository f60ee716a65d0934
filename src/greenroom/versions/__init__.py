"""Stores of published versions of apps and of their traffic, kept beside the records of runs: `store` is the contract,
with the backends `in_memory` and `sql` (SQLite and PostgreSQL). `apps/published.py` makes and loads the versions.
"""
