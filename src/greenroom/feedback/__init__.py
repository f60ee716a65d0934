"""Stores of feedback on events, kept beside the records of runs: `store` is the contract, with the backends
`in_memory`, `sql` (SQLite) and `postgres`. `runs/feedback.py` checks what is stored.
"""
