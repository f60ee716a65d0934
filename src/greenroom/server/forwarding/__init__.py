"""Forwards requests for sessions that another server of the same store runs, so that any server answers any request.

`forwarder`: `Forwarder`, the ASGI application around the server's own. `http_requests` and `web_sockets`: one hop of a
request, and of a socket. Both use `owners`, which finds the servers to ask, and `stamp`, the header that says where a
request came from. Internal: `progress`, which continues a stream after its server has ended, and
`http_client`, which sends requests to other servers.
"""
