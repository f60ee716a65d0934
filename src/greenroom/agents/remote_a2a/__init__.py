"""Agents on other servers, over the A2A protocol.

`agent` is the agent, `card` fetches what the server says of itself, `message` chooses what is sent,
`task` reads what comes back, and `config` has converters and interceptors.
"""
