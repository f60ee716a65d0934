"""Agents on other servers, over the A2A protocol.

`agent` is the agent, `card` fetches its card, `message` builds requests, `task` reads responses, and `config` has
converters and interceptors.
"""
