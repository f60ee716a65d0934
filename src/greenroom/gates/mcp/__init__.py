"""MCP: each app is a tool, its sessions are resources, and what it asks of a person is elicitation.

`server` translates; the protocol is the SDK's. `endpoints` connects the SDK's transport with this server's requests.
"""
