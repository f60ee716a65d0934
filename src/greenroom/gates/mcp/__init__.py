"""MCP: each app is a tool, its sessions are resources, and what it asks of a person is elicitation.

`endpoints` connects the SDK's transport with this server's requests, and serves over stdio. `agent` has
`to_mcp_server`, for one agent. Internal: `server`, which translates; the protocol is the SDK's.
"""
