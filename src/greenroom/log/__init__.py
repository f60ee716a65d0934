"""State of a session's log: folded once, and extended as events are appended.

`state`: the state of a session's log, which all other code queries for runs, calls and requests that wait.
`run_state`: the part about one run. `progress`: the run's progress, and whether it is over.
`calls`: the part about one call, and the responses of unfinished calls.
`rewind`: the events undone by rewinds. `retries`: those undone by retries of failed runs.
`compaction`: the events replaced by summaries.
"""
