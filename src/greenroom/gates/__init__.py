"""Runs over other protocols. A gate is a leaf over the run engine: it translates requests and
events, and stores nothing itself. Each has a table `ENDPOINTS`; the setting `gates` names those that
a server offers: `a2a`, `ag_ui`, `agent_engine`, `mcp`, `openai` and `triggers`.

Internal, shared by the gates: `steps` reads a run as steps, `replies` sends them, `run_start` starts
the run, and `chat_messages` converts the messages of chats.
"""
