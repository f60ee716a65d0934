"""State and services of one run.

`context`: what the framework sees of a run. `user_context`: what instructions, callbacks and tools get of it.
`live_requests`: the client's input to a live run. `compaction`: when and how an app's histories are summarized.
`template`: instructions with variables, filled in from the state and the artifacts.
"""
