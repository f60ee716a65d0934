"""Execution of one run: a message is accepted, agents run, and each event is committed.

`runner`: `Runner`, which the other modules serve. `accept`: checks a message against the session's log.
`next_agent`: chooses the agent that takes a turn. `commit`: stores and publishes events, and closes the log of a run
that was stopped. `rewind`, `compaction`, `remember`, `uploads`: optional parts of a run.
`in_memory`, `scripting`: ADK's shortcuts for scripts.
"""
