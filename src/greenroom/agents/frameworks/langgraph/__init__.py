"""Graphs of LangGraph as agents.

`agent` is the agent, `graph_turn` a turn of it, `checkpoints` keeps the graph's checkpoints in the session's log,
`callbacks` watches the models that the graph calls, and `messages` converts messages.
"""
