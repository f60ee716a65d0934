"""State and services of one run.

`context`: the framework's view of a run. `user_context`: the view of instructions, callbacks and tools.
`live_requests`: the client's input to a live run. `compaction`: when and how an app's histories are summarized.
`template`: instructions with variables, filled in from the state and the artifacts.
"""
