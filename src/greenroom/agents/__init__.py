"""Agents, and how one of them takes its turn.

`agent` is the base, `llm_agent` the agent with a model, `workflows` the sequential, parallel and
loop agents. An LLM agent's turn is `turn/`, its requests to people `human_input/`, its voice and
video `live/`. `workflow/` has graphs of nodes, and `remote_a2a/` agents on other servers.
`transfer` and `agent_tool` are the two ways from one agent to another.
"""
