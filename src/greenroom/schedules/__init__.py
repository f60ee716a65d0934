"""Schedules of runs: `times` are those of a schedule, `store` is the contract of where they are kept, with the backends
`in_memory` and `sql`. `runs/schedules.py` starts the runs.
"""
