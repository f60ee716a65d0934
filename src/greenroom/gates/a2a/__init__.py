"""The gate `a2a`: agent cards, and A2A's JSON-RPC and REST bindings, over the run engine.

A task is a run, and a context is a session: `task_events` writes them in A2A's JSON, `requests` reads
messages of version 1.0, `handler` answers them and the SDK's dispatchers, and `endpoints` has the routes.
"""
