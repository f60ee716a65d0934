"""Statistics of runs over time.

- `figures.py`: sums of figures, and histograms of durations
- `run_figures.py`: the figures of a run since it was counted last, from the session's log
- `rollups.py`: sums by minute, hour and day
- `store.py`: the contract of a store, and answers to queries
- `in_memory.py`, `sql.py`: the stores
"""
