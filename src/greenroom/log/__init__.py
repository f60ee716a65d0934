"""State of a session's log: folded once, and extended as events are appended.

`state`: the state of a session's log, which everybody asks what a run, a call or a request waits for.
`run_state`: the part of it about one run. `progress`: how far that run got, and whether it is over.
`calls`: the part about one call, and the responses of unfinished calls.
`rewind`: the events that a rewind took back. `compaction`: the events that were summarised.
"""
