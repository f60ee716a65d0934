"""The gate `a2a`: agent cards, and A2A's JSON-RPC, REST and gRPC bindings, over the run engine.

A task is a run, and a context is a session. `endpoints` has the routes, `grpc` the gRPC service and `card` the cards;
`app` has `to_a2a`, and `executor` the `A2aAgentExecutor` for servers that are built with A2A's SDK.
Internal: `requests` reads messages of version 1.0, `handler` answers them and the SDK's dispatchers, `task_events`
writes runs in A2A's JSON, `subscription` follows a task over several runs, and `push` posts to the client's webhook.
"""
