"""MCP: each app is a tool, its sessions are resources, and its requests to a person are elicitations.

`endpoints` connects the SDK's transport with this server's requests, and serves over stdio. `agent` has
`to_mcp_server`, for one agent. Internal: `server`, which translates; the protocol is the SDK's.
"""
