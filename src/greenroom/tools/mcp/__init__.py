"""Tools that servers of the Model Context Protocol offer.

`toolset` lists a server's tools and `tool` calls one. `connection` keeps the sessions, opened with `connection_params`
and `login`; `server_requests` answers a server's requests during a call. `progress`, `results`, `resources` and
`instruction_provider` are the protocol's other parts; `declaration` is for our own MCP server.
"""
